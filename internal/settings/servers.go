package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/counterd/counterd/internal/discovery"
)

// firstAnswer bounds the wait for a name or an endpoint at the start: what is started together
// may answer a little later. A file that is missing or broken stays so, and ends the start at once.
const firstAnswer = 10 * time.Second

// ParseServers checks the spelling of servers, or of one source of them, and leaves out what is
// empty. Whether names resolve is not checked.
func ParseServers(names []string) ([]string, error) {
	var servers []string
	var sourced string
	for _, name := range names {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		source, err := parseSource(name)
		if err == nil && source == nil {
			err = discovery.CheckServer(name)
		}
		if err != nil {
			return nil, err
		}
		if slices.Contains(servers, name) {
			return nil, fmt.Errorf("%s is named twice", name)
		}
		if source != nil {
			sourced = name
		}
		servers = append(servers, name)
	}
	switch {
	case len(servers) == 0:
		return nil, errors.New("no server is named")
	case sourced != "" && len(servers) > 1:
		return nil, fmt.Errorf("%s is the source of all servers: name no others beside it", sourced)
	}
	return servers, nil
}

// parseSource reads a source of servers; nil: the name is that of a server.
func parseSource(name string) (discovery.Source, error) {
	kind, rest, _ := strings.Cut(name, ":")
	// A host may be called dns.
	if discovery.CheckServer(name) == nil {
		return nil, nil
	}
	switch kind {
	case "dns":
		source, err := discovery.ParseDNS(rest)
		if err != nil {
			return nil, fmt.Errorf("dns:NAME:PORT: %w", err)
		}
		return source, nil
	case "aws":
		source, err := discovery.ParseCluster(rest)
		if err != nil {
			return nil, fmt.Errorf("aws:HOST:PORT: %w", err)
		}
		return source, nil
	}
	return nil, nil
}

// Source returns the source of the servers, and how long it may take at the start.
func (s *Settings) Source() (source discovery.Source, wait time.Duration, err error) {
	if s.MemcachedFile != "" {
		return discovery.File{Path: s.MemcachedFile}, 0, nil
	}
	if len(s.Memcached) == 1 {
		source, err = parseSource(s.Memcached[0])
		if source != nil || err != nil {
			return source, firstAnswer, err
		}
	}
	return discovery.Static(s.Memcached), 0, nil
}

// SourceName returns the file, name or endpoint that lists the servers, or the servers.
func (s *Settings) SourceName() string {
	if s.MemcachedFile != "" {
		return s.MemcachedFile
	}
	return strings.Join(s.Memcached, ",")
}

// SourceKind returns the kind of a source: file, dns or aws.
func (s *Settings) SourceKind() string {
	if s.MemcachedFile != "" {
		return "file"
	}
	kind, _, _ := strings.Cut(s.SourceName(), ":")
	return kind
}
