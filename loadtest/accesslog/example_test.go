package accesslog_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/counterd/counterd/loadtest/accesslog"
)

func ExampleRead() {
	log := strings.NewReader(`192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 512 "-" "curl/8.5.0"
this is no entry
192.0.2.7 - frank [17/May/2015:10:05:43 +0000] "GET /favicon.ico HTTP/1.1" 404 -
{"time": "2015-05-17T10:05:59.5Z", "host": "192.0.2.1", "status": 200}
`)
	format, err := accesslog.NewAuto(accesslog.JSONConfig{Fields: []string{"host", "status"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	n := 0
	for record, err := range accesslog.Read(log, format) {
		n++
		switch {
		case errors.Is(err, accesslog.ErrMalformed):
			fmt.Println(n, err)
		case err != nil:
			fmt.Println("the log ends here:", err)
		default:
			fmt.Println(n, record.Field("host"), record.Time.Unix(), record.Field("status"))
		}
	}
	// Output:
	// 1 192.0.2.1 1431857103 200
	// 2 accesslog: malformed line: no user behind the ident
	// 3 192.0.2.7 1431857143 404
	// 4 192.0.2.1 1431857159 200
}
