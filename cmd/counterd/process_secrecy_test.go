package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/leaktest"
	"github.com/counterd/counterd/internal/testkit/markedtest"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// stranger is a client whose every word is a mark, its address too.
type stranger struct {
	t      *testing.T
	marks  *markedtest.Marks
	dialer net.Dialer
	http   *http.Client

	word, email, address, address6 string
}

func newStranger(t *testing.T, marks *markedtest.Marks) *stranger {
	s := &stranger{t: t, marks: marks, word: marks.Word(), email: marks.Email(), address: marks.Address(), address6: marks.Address6()}
	s.dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(marks.Loopback())}
	transport := &http.Transport{DialContext: s.dialer.DialContext, DisableKeepAlives: true}
	s.http = &http.Client{Transport: transport, Timeout: soon}
	t.Cleanup(transport.CloseIdleConnections)
	return s
}

func sumOf(word string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(word))) }

// rules are such that each of the marks is in them, and each verdict is reached.
func (s *stranger) rules() string {
	return fmt.Sprintf(`events:
  deny:
    limits:
      - {per: user, rate: 2/d, on_error: deny, deny: [%[1]q], allow: [%[2]q], overrides: {%[1]q: 5/d}}
      - {per: ip, rate: 3/d, on_error: deny, deny: [%[3]q, %[4]q], overrides: {%[3]q: 7/d}}
    from: {ip: forwarded, user: header X-User}
  local: {limits: [{per: [ip, user], rate: 2/d, on_error: local}], from: {ip: peer, user: bearer}}
  allow: {limits: [{per: user, rate: 2/d, on_error: allow}]}
  plain: {}
trusted_proxies: [127.0.0.0/8]
`, s.word, s.email, s.address, s.address6)
}

// busted are rules files with faults in, and around, what is listed.
func (s *stranger) busted() (files []string) {
	for _, text := range []string{
		"events: {e: {limits: [{per: ip, rate: 1/d, deny: [%[3]s/8]}]}}",
		"events: {e: {limits: [{per: ip, rate: 1/d, deny: [%[3]q], allow: [%[3]q]}]}}",
		"events: {e: {limits: [{per: ip, rate: 1/d, overrides: {%[3]q: 1/d, \"%[3]s/32\": 2/d, %[2]q: 1/x, %[1]s: [1/d, 2/d]}}]}}",
		"events: {e: {limits: [{per: ip, rate: 1/d, ipv6_prefix: 64, overrides: {%[4]q: 1/d, \"%[4]s/128\": 2/d}}]}}",
		"events: {e: {limits: [{per: user, rate: %[1]s, name: \"\\\"%[2]s\", throttle: %[1]s, on_error: %[1]s, shadow: %[1]s}]}}",
		"events: {e: {limits: [{per: %[2]q, rate: 1/d, %[1]s: 1, %[2]q: 2}]}}",
		"events: {%[2]q: {}, e: {retention: %[1]s, from: {%[2]q: peer, user: %[1]s}}}",
		"events: {e: {limits: [{per: user, rate: 1/d, deny: [*%[1]s]}]}}",
		"events: {e: {limits: [{per: user, rate: 1/d, deny: [!%[1]s x, &%[1]s y]}]}}",
		"events:\n  e:\n    limits:\n      - per: user\n        deny: [%[1]s\n        rate: 1/d\n",
		"events: {e: {limits: [{per: user, rate: 1/d, deny: [\"%[1]s\\q\"]}]}}",
		"%[1]s: [%[2]s",
		"%[1]s: \x00%[2]s",
		"trusted_proxies: [%[3]s/8, %[1]s]\nheaders: [%[1]s]\n",
		"--- \nevents: {}\n--- %[1]s\n",
		"%%TAG ! %[1]s\n---\nevents: {}\n",
		"%[1]s",
	} {
		files = append(files, fmt.Sprintf(text, s.word, s.email, s.address, s.address6))
	}
	return files
}

// asks makes all kinds of requests, good ones and bad ones, and returns their statuses.
func (s *stranger) asks(base string) map[int]bool {
	statuses := map[int]bool{}
	ask := func(method, target, body string, headers ...string) {
		request, err := http.NewRequest(method, base+target, strings.NewReader(body))
		require.NoError(s.t, err)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("X-Forwarded-For", s.address+", "+s.address6)
		request.Header.Set("X-User", s.email)
		request.Header.Set("Authorization", "Bearer "+s.word)
		request.Header.Set("Cookie", s.word)
		for i := 0; i < len(headers); i += 2 {
			request.Header.Set(headers[i], headers[i+1])
		}
		response, err := s.http.Do(request)
		if !assert.NoError(s.t, err) {
			return
		}
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		statuses[response.StatusCode] = true
	}
	who := fmt.Sprintf(`{"ip": %q, "user": %q}`, s.address, s.email)
	for _, event := range []string{"deny", "local", "allow", "plain", s.word, url.PathEscape(s.email)} {
		path := "/v1/events/" + event
		for range 4 {
			ask("POST", path+"/hit", `{"features": `+who+`}`)
		}
		for _, body := range []string{
			fmt.Sprintf(`{"features": {"user": %q}}`, s.word), fmt.Sprintf(`{"features": {"ip": %q, "user": %q}}`, s.address6, s.word),
			fmt.Sprintf(`{"features": {"ip": %q}}`, s.email), fmt.Sprintf(`{"features": {%q: "1"}}`, s.email), fmt.Sprintf(`{%q: 1}`, s.email),
			fmt.Sprintf(`{"features": %q}`, s.email), fmt.Sprintf(`{"features": {"user": %q, "user": %q}}`, s.email, s.email),
			`"` + s.email, `{"features": {"user": "` + s.email + "\xff" + `"}}`, `{"features": ` + who + `, "cost": 1e99}`,
			`{"features": ` + who + `, "at": "` + s.word + `"}`, `{"features": ` + who + `, "by": "` + s.word + `"}`,
		} {
			ask("POST", path+"/hit", body)
			ask("POST", path+"/increment", body)
			ask("POST", "/v1/batch", `{"hits": [{"event": "`+event+`", "features": `+who+`}, `+body+`]}`)
		}
		ask("POST", path+"/hit", who, "Content-Type", s.word)
		ask("POST", path+"/hit?"+url.QueryEscape(s.email), who)
		of := "feature=" + url.QueryEscape("ip:"+s.address)
		for _, query := range []string{of, of + "&window=1h", of + "&window=" + s.word, of + "&window=1h&at=" + s.word, "feature=" + s.email, "%zz" + s.word, s.word, of + "&level=hour&from=" + s.word} {
			for _, route := range []string{"count", "history", "check"} {
				ask("GET", path+"/"+route+"?"+query, "")
			}
			ask("DELETE", path+"/counters?"+query, "")
		}
		ask("GET", "/v1/authorize/"+event, "")
		ask(s.word, "/v1/authorize/"+event, "", "X-User", s.email)
		ask(s.word, path+"/hit", "")
		ask("GET", path, s.word)
	}
	ask("GET", "/"+s.word+"?"+s.email, "")
	ask("GET", "/v1/events/%2F"+s.word, "")
	ask("GET", "/metrics?"+s.word, "")
	ask("GET", "/readyz?"+s.word, "")
	return statuses
}

// mutters sends what is no request.
func (s *stranger) mutters(address string) {
	for _, text := range []string{
		"GET /" + s.word + "\r\n\r\n", s.word + "\r\n\r\n", "GET / HTTP/1.1\r\n" + s.email + "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: " + s.word + "\r\nHost: " + s.email + "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nX-User: " + strings.Repeat(s.email, 10_000) + "\r\n\r\n",
		"POST /v1/events/deny/hit HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"features\": {\"user\": \"" + s.email,
		"POST /v1/events/deny/hit HTTP/1.1\r\nHost: x\r\nContent-Length: " + s.word + "\r\n\r\n",
		"POST /v1/events/deny/hit HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: " + s.word + "\r\n\r\n",
		"POST /v1/events/deny/hit HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + s.word + "\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + s.word,
	} {
		conn, err := s.dialer.Dial("tcp", address)
		require.NoError(s.t, err)
		io.WriteString(conn, text)
		conn.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, conn)
		conn.Close()
	}
	conn, err := s.dialer.Dial("tcp", address)
	require.NoError(s.t, err)
	assert.Error(s.t, tls.Client(conn, &tls.Config{ServerName: s.word + ".example", NextProtos: []string{s.word}}).Handshake())
	conn.Close()
}

// Whatever clients do, and whatever becomes of the store and the rules: no feature's
// value, client's address, query or word of theirs is in what a process says, at
// /metrics, at /readyz or in its spans. The answer to a client about its own request is another matter.
func TestNothingSaysWhoWasCounted(t *testing.T) {
	leaktest.Parallel(t)
	formats := map[string]string{"json": `"failures":%d,`}
	if testkit.All() {
		formats["text"] = "failures=%d "
	}
	for format, failures := range formats {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			c := startCollector(t)
			var marks markedtest.Marks
			s := newStranger(t, &marks)
			rules := filepath.Join(t.TempDir(), "rules.yaml")
			testkit.WriteFile(t, rules, s.rules())
			servers := []*memcachedtest.Server{memcachedtest.Start(t), memcachedtest.Start(t)}
			names := servers[0].Addr + "," + servers[1].Addr
			secret := marks.Word()
			start := func(args ...string) *process {
				return startProcess(t, append([]string{"-rules", rules, "-timeout", "200ms", "-max-connections", "50", "-log", format, "-otlp-endpoint", c.URL}, args...)...)
			}
			all := map[string]*process{
				"one copy":   start("-memcached", names, "-key-secret", testkit.SecretFile(t, secret)),
				"two copies": start("-memcached", names, "-replicas", "2", "-protocol", "classic"),
				"embedded":   start("-access-log"),
				"guarded":    start("-access-log", "-tokens", testkit.SecretFile(t, "edge all "+marks.Word()+marks.Word()+"\n")),
				"forbidding": start("-access-log", "-tokens", testkit.SecretFile(t, "edge rules sha256:"+sumOf(s.word)+"\n")),
				"overloaded": start("-memcached", names, "-max-pending", "1", "-timeout", "1s", "-max-connections", "3"),
			}
			everything := func() map[int]bool {
				statuses := map[int]bool{}
				for name, p := range all {
					if name == "overloaded" {
						continue
					}
					maps.Copy(statuses, s.asks(p.url))
					s.mutters(strings.TrimPrefix(p.url, "http://"))
				}
				return statuses
			}
			statuses := everything()
			for _, want := range []int{200, 204, 400, 401, 403, 404, 405, 415, 429} {
				assert.Contains(t, statuses, want)
			}

			// Each broken edit.
			for i, text := range s.busted() {
				testkit.ReplaceFile(t, rules, text)
				for _, p := range all {
					p.log.Await(t, "rules not reloaded", fmt.Sprintf(failures, i+1))
				}
				said := output(t, exitFailed, "validate", rules) + output(t, exitFailed, "-listen", "127.0.0.1:0", "-rules", rules)
				marks.Absent(t, "what is said of "+text, said)
			}
			testkit.ReplaceFile(t, rules, s.rules())

			// Too much at once, while a server hangs.
			servers[0].Pause()
			servers[1].Pause()
			overload(s, all["overloaded"])
			servers[0].Resume()
			servers[1].Resume()

			servers[0].Stop()
			everything()
			servers[1].Stop()
			assert.Contains(t, everything(), 503)
			servers[0].Restart()
			servers[1].Restart()
			everything()

			for name, p := range all {
				for _, of := range []string{"/metrics", "/readyz"} {
					_, body := p.get(t, of)
					marks.Absent(t, of+" of "+name, body)
				}
				p.stop(t)
				marks.Absent(t, "the log of "+name, withoutResets(p.log.String()))
			}
			require.Greater(t, len(c.spans()), 1000)
			marks.Absent(t, "the spans", c.raw.String())
		})
	}
}

// withoutResets returns the log without the lines that say which counter was reset, and by which token.
func withoutResets(log string) string {
	var kept strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, ` msg="counter reset`) && !strings.Contains(line, `"msg":"counter reset`) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// overload has more hits and connections wait than the process takes.
func overload(s *stranger, p *process) {
	var waiting sync.WaitGroup
	for range 12 {
		waiting.Go(func() {
			ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
			defer cancel()
			body := fmt.Sprintf(`{"features": {"user": %q, "ip": %q}}`, s.email, s.address)
			request, err := http.NewRequestWithContext(ctx, "POST", p.url+"/v1/events/deny/hit?"+s.word, strings.NewReader(body))
			if assert.NoError(s.t, err) {
				if response, err := s.http.Do(request); err == nil {
					response.Body.Close()
				}
			}
		})
	}
	waiting.Wait()
}

// The search finds what it has to: a process that is given a mark for a name says it.
func TestTheSearchFinds(t *testing.T) {
	var marks markedtest.Marks
	folder := filepath.Join(t.TempDir(), marks.Word())
	require.NoError(t, os.Mkdir(folder, 0o700))
	path := filepath.Join(folder, "rules.yaml")
	testkit.WriteFile(t, path, "events: {}")
	assert.NotEmpty(t, marks.Find(output(t, exitFailed, "-rules", path)))
}
