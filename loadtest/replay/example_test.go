package replay_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/counterd/counterd/api/client"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/fakeserver"
	"github.com/counterd/counterd/loadtest/accesslog"
	"github.com/counterd/counterd/loadtest/replay"
)

func ExampleRun() {
	// A server to prove. This one loses the last of the two events.
	server := httptest.NewServer(&fakeserver.Server{
		Event: events.Event{Name: "url_shorten"},
		Clock: stopped,
		Times: func(n int) int { return 2 - n },
	})
	defer server.Close()
	c, err := client.New(client.Config{URL: server.URL})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()

	ctx := context.Background()
	format, err := accesslog.New(accesslog.Config{Fields: []string{"host"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	log, err := accesslog.ReadLog(ctx, format, accesslog.DefaultMapping(), accesslog.Stream("", strings.NewReader(`192.0.2.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 512
192.0.2.1 - - [17/May/2015:10:05:43 +0000] "GET / HTTP/1.1" 200 512
`)))
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := replay.Run(ctx, replay.Config{
		Client: c, Event: "url_shorten", Clock: stopped, Concurrency: 1,
	}, log)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Events, "events,", result.Comparisons, "comparisons,", result.Differences, "differences")
	fmt.Println(result.FirstDifferences[0].Feature, result.FirstDifferences[0].Reason)
	// Output:
	// 2 events, 17 comparisons, 5 differences
	// ip:192.0.2.1 the count is wrong
}
