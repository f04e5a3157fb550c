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
`)
	n := 0
	for entry, err := range accesslog.Read(log) {
		n++
		switch {
		case errors.Is(err, accesslog.ErrMalformed):
			fmt.Println(n, err)
		case err != nil:
			fmt.Println("the log ends here:", err)
		default:
			fmt.Println(n, entry.Host, entry.Time.Unix(), entry.Status)
		}
	}
	// Output:
	// 1 192.0.2.1 1431857103 200
	// 2 accesslog: malformed line: no user behind the ident
	// 3 192.0.2.7 1431857143 404
}
