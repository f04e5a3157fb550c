package suggest_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/suggest"
)

func ExampleRun() {
	format, err := accesslog.NewCommon("host")
	if err != nil {
		log.Fatal(err)
	}
	lines := `192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 512
192.0.2.1 - - [17/May/2015:10:05:43 +0000] "GET / HTTP/1.1" 200 512
192.0.2.7 - - [17/May/2015:10:06:44 +0000] "GET / HTTP/1.1" 200 512
`
	ctx := context.Background()
	read, err := accesslog.ReadLog(ctx, format, accesslog.DefaultMapping(), accesslog.Stream("access.log", strings.NewReader(lines)))
	if err != nil {
		log.Fatal(err)
	}
	report, err := suggest.Run(ctx, suggest.Config{
		Log: read, Name: "access.log", Kinds: []string{"ip"}, Event: "url_shorten", Deny: suggest.DefaultDeny,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(report.Rules)
	// Output:
	// # Suggested by loadtest replay -suggest -deny 0.1, from access.log:
	// # 3 lines from 2015-05-17T10:05:03Z to 2015-05-17T10:06:44Z.
	// # ip: these limits would have denied 0 of 2 features at some time (0.00%), with 0.00% of the traffic.
	// #   left out: one for the hour: the log is shorter
	// #   left out: one for the day: the log is shorter
	// # Of 3 hits 0 would have been denied (0.00%).
	// events:
	//   url_shorten:
	//     limits:
	//       - per: ip
	//         rate: [1/s, 2/m]
}
