package whatif_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/counterd/counterd/events/rulesfile"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/whatif"
)

func ExampleRun() {
	rules, err := rulesfile.Parse([]byte("events: {url_shorten: {limits: [{per: ip, rate: 2/m}]}}"))
	if err != nil {
		log.Fatal(err)
	}
	format, err := accesslog.New(accesslog.Config{Fields: []string{"host"}})
	if err != nil {
		log.Fatal(err)
	}
	lines := strings.Repeat(`192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 512`+"\n", 5)
	ctx := context.Background()
	read, err := accesslog.ReadLog(ctx, format, accesslog.DefaultMapping(), accesslog.Stream("access.log", strings.NewReader(lines)))
	if err != nil {
		log.Fatal(err)
	}
	report, err := whatif.Run(ctx, whatif.Config{Event: rules.Events["url_shorten"], Log: read})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.All.Admitted, "admitted,", report.All.Denied, "denied, most of them:", report.All.MostDenied[0].Feature)
	// Output: 2 admitted, 3 denied, most of them: ip:192.0.2.1
}
