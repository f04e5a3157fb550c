package api_test

import (
	"crypto/sha256"
	"encoding/gob"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/counterd/counterd/api"
	"github.com/counterd/counterd/internal/testkit/exchanges"
)

// newDescribed returns api.NewHandler, whose exchanges internal/conformance holds to api/openapi.yaml.
func newDescribed(config api.ServerConfig) http.Handler {
	return recording(api.NewServerHandler(config))
}

// newDescribedAdmin returns api.NewAdminHandler, whose exchanges are recorded, too.
func newDescribedAdmin(config api.ServerConfig) http.Handler {
	return recording(api.NewAdminHandler(config))
}

// bare returns the handler without a recorder, for tests that measure how much memory it takes.
func bare(h http.Handler) http.Handler {
	if recorder, ok := h.(exchanges.Recorder); ok {
		return recorder.Handler
	}
	return h
}

func recording(h http.Handler) http.Handler {
	if record := recorder(); record != nil {
		return exchanges.Recorder{Handler: h, Record: record}
	}
	return h
}

// recorder appends each different exchange to the file that the environment names. It is nil without one.
var recorder = sync.OnceValue(func() func(exchanges.Exchange) {
	name := os.Getenv(exchanges.Variable)
	if name == "" {
		return nil
	}
	file, err := os.Create(name) // it is open until the process ends
	if err != nil {
		panic(err)
	}
	encoder := gob.NewEncoder(file)
	var mu sync.Mutex
	written := map[[sha256.Size]byte]bool{}
	return func(e exchanges.Exchange) {
		without := e // what differs between equal exchanges
		without.Test, without.AnswerHeader = "", e.AnswerHeader.Clone()
		without.AnswerHeader.Del("X-Request-Id")
		key := sha256.Sum256(fmt.Append(nil, without))
		mu.Lock()
		defer mu.Unlock()
		if written[key] {
			return
		}
		written[key] = true
		if err := encoder.Encode(e); err != nil {
			panic(err)
		}
	}
})

// operation is what the description says of a method of a path.
type operation struct {
	method, path, id string
	classes          string // of tokens that permit it, or anyone
	statuses         []string
}

// operations returns all operations of the description.
var operations = sync.OnceValue(func() (list []operation) {
	var description struct {
		Paths map[string]map[string]jsontext.Value `json:"paths"`
	}
	if err := json.Unmarshal(api.OpenAPI(), &description); err != nil {
		panic(err)
	}
	for path, item := range description.Paths {
		for method, value := range item {
			if method == "parameters" {
				continue
			}
			var of struct {
				OperationID string                    `json:"operationId"`
				Security    []map[string][]string     `json:"security"`
				Responses   map[string]jsontext.Value `json:"responses"`
			}
			if err := json.Unmarshal(value, &of); err != nil {
				panic(err)
			}
			classes := "anyone"
			for _, requirement := range of.Security {
				for _, roles := range requirement {
					classes = strings.Join(roles, " ")
				}
			}
			statuses := slices.Sorted(maps.Keys(of.Responses))
			list = append(list, operation{strings.ToUpper(method), path, of.OperationID, classes, statuses})
		}
	}
	return list
})
