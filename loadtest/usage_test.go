package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/testkit/fakeserver"
)

// Wrong arguments are named in one line, before anything is called.
func TestUsage(t *testing.T) {
	one := rulesFile(t, "events: {signup: {limits: [{per: [email, user], rate: 1/d}, {per: ip, rate: 2/d}]}}")
	two := rulesFile(t, "events: {signup: {limits: [{per: ip, rate: 1/d}]}, login: {limits: [{per: ip, rate: 1/d}]}}")
	wrong := rulesFile(t, "events: {signup: {limits: [{per: ip, rate: 1/x}, {per: ip}]}}")
	empty := rulesFile(t, "events: {}")
	hour := serve(t, &fakeserver.Server{Event: events.Event{Retention: time.Hour}})
	for _, c := range []struct{ want, args string }{
		{"a command is wanted", ""},
		{`there is no command "reply"; did you mean "replay"?`, "reply"},
		{"flag provided but not defined: -", "run -nope"},
		{`not defined: -profil; did you mean "-profile"?`, "run -profil 3"},
		{"no argument is taken", "run more"},
		{"for flag -duration: 30 has no unit: write 30s, or 30ms; loadtest run -h", "run -duration 30"},
		{"for flag -soak: 30 has no unit", "verify -soak 30"},

		{"-rate excludes -profile", "run -rate 1 -profile 2"},
		{"-url excludes -embedded", "run -embedded memory -url http://localhost"},
		{"-duration excludes -find-max", "run -find-max -p99 1s -duration 2s"},
		{"-max-failures: it is", "run -max-failures 100%"},
		{"-max-p99 is above", "run -max-p99 -1s"},
		{"-p99 is above 0", "run -find-max"},
		{"-trial is at least", "run -find-max -p99 1s -trial 1ms"},
		{"-rules goes with -embedded", "run -rules x"},
		{`"No" cannot be an event`, "run -event No"},
		{"-kind has one twice", "run -kind ip,ip"},
		{"-population is", "run -population 0"},
		{"-zipf is above 1, not 0.5", "run -zipf 0.5"},
		{"-mix: ", "run -mix hits=1"},
		{"-costs: ", "run -costs 0"},
		{"-batch is 1 to 1000 hits", "run -batch 1001"},
		{"-window is 1s to", "run -window 1ms"},
		{"-rate: no profile", "run -rate 0"},
		{"-profile: no profile", "run -profile ramp:1"},
		{"-duration is at least", "run -duration 1ms"},
		{"-warm-up is", "run -warm-up -1s"},
		{"-timeout is", "run -timeout 0s"},
		{"-max-in-flight is 1 to", "run -max-in-flight -1"},
		{"-url or -admin: ", "run -url localhost:8080"},
		{"-rls excludes -embedded", "run -rls a:1 -embedded memory"},
		{"has hits and checks, no count", "run -rls a:1 -mix hit=1,count=1"},
		{"-rls: rlsclient: an address", "run -rls nowhere"},

		{"-duration", "verify -duration 0s"},
		{"-clients", "verify -clients -3"},
		{"-features", "verify -features 0"},
		{"-rate", "verify -rate -1"},
		{"-servers is", "verify -url http://localhost:8080 -servers 3"},
		{"-chaos is of what", "verify -url http://localhost:8080 -chaos"},
		{"-store is", "verify -store redis -counterd true"},
		{"-replicas is", "verify -replicas 3 -servers 2 -counterd true"},
		{"-soak is at least 5s", "verify -soak 1s -counterd true"},
		{"-processes is", "verify -processes 65 -counterd true"},
		{"no-such-program", "verify -counterd no-such-program"},
		{"-rules wants", "verify -rules " + empty},
		{"-rls wants -rules", "verify -rls a:1 -event e"},

		{"flags stand in front of FILE", "replay a -json"},
		{"", "replay -increment -url localhost:8080"},
		{"", "replay -increment -c 0"},
		{"", "replay -increment -windows 1500ms"},
		{"", "replay -increment -url " + hour + " -windows 2h"},
		{`a format is auto or sshd, not "apache"`, "replay -format apache"},
		{"-format and -regexp exclude each other", "replay -format sshd -regexp (?P<time>x)"},
		{`the expression has no field "host"`, `replay -regexp (?P<time>\S+)`},
		{"-time-field is for JSON lines", "replay -format sshd -time-field ts"},
		{"-time-layout: a layout is auto, or Go's with all from the year", "replay -time-layout %Y-%m-%d"},
		{"-features: the kind ip is given twice", "replay -features ip=a,ip=b"},
		{"-year is 1970 to 9999", "replay -year 26"},
		{"one of them at a time", "replay -rules " + one + " -suggest"},
		{"-reset is for -increment", "replay -suggest -reset"},
		{"-increment excludes -rules", "replay -increment -rules " + one},
		{"-write is for -suggest", "replay -rules " + one + " -write a"},
		{"-html is for -rules and -suggest; -top is for -rules", "replay -increment -html a -top 3"},
		{"for flag -deny: it is a percentage from 0 to below 100", "replay -suggest -deny 100"},
		{"-memory is above 0", "replay -suggest -memory 0"},
		{"-cost is the name of one field", "replay -suggest -cost bytes,user"},
		{"limits[0].rate: a window: ", "replay -rules " + wrong},
		{"-event names one of the rules: login, signup", "replay -rules " + two},
		{"add email=FIELD,user=FIELD", "replay -rules " + one},

		{"-from, -to and -domain are", "migrate -from a:1"},
		{"-kind is of requests that are", "migrate -from a:1 -to b:1 -domain d -kind user access.log"},
		{"-requests is above 0", "migrate -from a:1 -to b:1 -domain d -requests 0"},

		{"-rules is needed", "plan -features-a-day 1 -events-a-day 1"},
		{"or a log", "plan -rules " + two},
		{"-features-a-day", "plan -rules " + two + " -features-a-day x -events-a-day 1"},
		{"-events-a-day", "plan -rules " + two + " -features-a-day 1 -events-a-day 0"},
		{"-server-memory", "plan -rules " + two + " -features-a-day 1 -events-a-day 1 -server-memory 4GiB"},
		{"-peak is of no use", "plan -rules " + two + " -peak 2 -"},
		{"the rules have no event", "plan -rules " + two + " -features-a-day 1 -events-a-day 1 -event nope"},
	} {
		got := runWith(t, strings.NewReader(log), strings.Fields(c.args)...)
		assert.Equal(t, exitUsage, got.status, c.args)
		assert.Empty(t, got.out, c.args)
		assert.Contains(t, got.err, c.want, c.args)
		said := strings.TrimPrefix(got.err, "loadtest: 1 malformed lines: 2; 1: feature of kind \"ip\": the value is not an IP address\n")
		assert.Equal(t, 1, strings.Count(said, "\n"), "one line, not %q", said)
	}
}

// Each command explains itself.
func TestHelp(t *testing.T) {
	for args, text := range map[string]string{
		"-h": "loadtest replay", "help": "loadtest replay", "run --help": "to within 5%.", "verify -h": "-chaos", "plan -h": "-peak number", "replay -h": "loadtest replay",
	} {
		got := runWith(t, nil, strings.Fields(args)...)
		assert.Equal(t, exitOK, got.status)
		assert.Empty(t, got.err)
		assert.Contains(t, got.out, text)
	}
}
