package main

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/server"
)

// metric returns the value of the line of /metrics with that name and those labels.
func (p *process) metric(t *testing.T, name string) int {
	t.Helper()
	_, text := p.get(t, "/metrics")
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(text)
	require.NotNil(t, found, "%s: %s", name, text)
	value, err := strconv.ParseFloat(found[1], 64)
	require.NoError(t, err)
	return int(value)
}

// keep opens a connection to the process that has been answered and is idle.
func (p *process) keep(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode)
	return conn
}

// Thousands of idle connections hold up no request, and leave nothing behind.
func TestThousandsOfIdleConnections(t *testing.T) {
	many := server.DefaultSettings()
	many.MaxConnections, many.Log = math.MaxInt, slog.New(slog.DiscardHandler)
	connections := min(2000, server.Connections(many, 0)-400)
	require.Greater(t, connections, 400, "this test opens many files: raise the limit")
	p := startProcess(t)
	c := p.client(t)
	hit := func(i int) {
		d, err := c.Hit(t.Context(), "url_shorten", events.Features{"ip": fmt.Sprintf("10.0.%d.%d", i>>8, i&255)}, 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	hit(0)
	before := p.metric(t, "go_goroutines")
	var idle []net.Conn
	for i := range connections {
		idle = append(idle, p.keep(t))
		if i%10 == 0 {
			hit(i)
		}
	}
	assert.GreaterOrEqual(t, p.metric(t, "counterd_connections"), connections)
	assert.GreaterOrEqual(t, p.metric(t, "go_goroutines"), connections)
	assert.Less(t, p.metric(t, "go_memstats_sys_bytes")>>10, 100<<10+64*connections, "KiB")
	for _, conn := range idle {
		require.NoError(t, conn.Close())
	}
	require.Eventually(t, func() bool {
		return p.metric(t, "counterd_connections") <= 3 && p.metric(t, "go_goroutines") <= before+3
	}, time.Minute, 50*time.Millisecond)
	hit(1)
	assert.Zero(t, p.metric(t, "counterd_connections_refused_total"))
}

// A process keeps to the number of connections that it is given: idle ones make room.
func TestMaxConnections(t *testing.T) {
	p := startProcess(t, "-max-connections", "20", "-max-pending", "7")
	for range 100 {
		p.keep(t)
	}
	assert.LessOrEqual(t, p.metric(t, "counterd_connections"), 20)
	assert.Zero(t, p.metric(t, "counterd_connections_refused_total"))
	assert.Zero(t, p.metric(t, `counterd_pending{of="hits"}`))
	assert.Zero(t, p.metric(t, `counterd_overload_total{of="counts"}`))
}
