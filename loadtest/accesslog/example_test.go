package accesslog_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/counterd/counterd/loadtest/accesslog"
)

func ExampleNew() {
	format, err := accesslog.New(accesslog.Config{Fields: []string{"host", "status"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, line := range []string{
		`192.0.2.7 - frank [17/May/2015:10:05:43 +0000] "GET /favicon.ico HTTP/1.1" 404 -`,
		`{"time": "2015-05-17T10:05:59.5Z", "host": "192.0.2.1", "status": 200}`,
		`this is no entry`,
	} {
		_, values, err := format.Parse(line)
		fmt.Println(values, err)
	}
	// Output:
	// [192.0.2.7 404] <nil>
	// [192.0.2.1 200] <nil>
	// [] accesslog: malformed line: it is not in the common or combined log format
}

func ExampleReadLog() {
	mapping, err := accesslog.ParseMapping("ip=client.ip,user")
	if err != nil {
		fmt.Println(err)
		return
	}
	format, err := accesslog.New(accesslog.Config{Fields: mapping.Fields()})
	if err != nil {
		fmt.Println(err)
		return
	}
	in := strings.NewReader(`{"time": "2015-05-17T10:05:43Z", "client": {"ip": "192.0.2.7"}, "user": "frank"}
{"time": "2015-05-17T10:05:03Z", "client": {"ip": "192.0.2.1"}, "user": "-"}
{"time": "2015-05-17T10:05:03Z", "client": {"ip": "www.example.com"}}
`)
	log, err := accesslog.ReadLog(context.Background(), format, mapping, accesslog.Stream("standard input", in))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(log.Malformed, "malformed:", log.Places)
	for at, features := range log.All() {
		fmt.Println(at.Format("15:04:05"), features)
	}
	// Output:
	// 1 malformed: [3]
	// 10:05:03 map[ip:192.0.2.1]
	// 10:05:43 map[ip:192.0.2.7 user:frank]
}
