package counterd_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api"
)

// A hit of cost 0 adds nothing and fits as long as the limit is not exceeded, by every algorithm; also over HTTP.
func TestFreeHits(t *testing.T) {
	rules := parse(t, `events:
  sliding:  {limits: [{per: ip, rate: 3/d}, {per: [], rate: 9/h}]}
  fixed:    {limits: [{per: ip, rate: 3/d, algorithm: fixed-window}]}
  log:      {limits: [{per: ip, rate: 3/d, algorithm: sliding-log}]}
  calendar: {limits: [{per: ip, rate: 3/d, calendar: UTC}]}
  token:    {limits: [{per: ip, rate: 3/d, burst: 3}]}
  leaky:    {limits: [{per: ip, rate: 3/d, queue: 2}]}
  all:      {limits: [{per: ip, rate: 3/d, count: all}]}
  reserved: {limits: [{per: ip, rate: 3/d, algorithm: sliding-log}]}
`)
	onMemcached(t, func(t *testing.T, options ...counterd.Option) {
		limiter := start(t, rules, options...)
		for _, event := range []string{"sliding", "fixed", "log", "calendar", "token", "leaky", "all"} {
			for i := range int64(5) { // 3 fit, 2 do not
				for range 2 {
					d, err := limiter.HitN(ctx, event, visitor, 0)
					require.NoError(t, err, event)
					require.True(t, d.Allowed, "%s, hit %d", event, i)
					require.Zero(t, d.Wait, event)
					require.False(t, d.Limits[0].Failed)
					if event != "leaky" && (event != "all" || i < 3) {
						require.Equal(t, min(i, 3), d.Limits[0].Count, event)
						require.Equal(t, max(3-i, 0), d.Limits[0].Remaining, event)
					}
					checked, err := limiter.CheckN(ctx, event, visitor, 0)
					require.NoError(t, err, event)
					require.True(t, checked.Allowed, event)
					if event == "all" && i >= 3 {
						break
					}
				}
				if event == "all" && i == 3 {
					break // what it counts beyond the limit leaves no room for a free hit either
				}
				d, err := limiter.Hit(ctx, event, visitor)
				require.NoError(t, err)
				require.Equal(t, i < 3, d.Allowed, "%s, hit %d", event, i)
			}
		}
		_, err := limiter.HitN(ctx, "sliding", visitor, -1)
		require.ErrorIs(t, err, counterd.ErrOutOfRange)
		_, err = limiter.Reserve(ctx, "reserved", visitor, 0, time.Minute)
		require.ErrorIs(t, err, counterd.ErrOutOfRange, "there is nothing to settle")
	})
}

// A free hit is a hit: where a limit is 0, or on a deny list, it is denied, and of leases it takes one.
func TestFreeHitsAreDenied(t *testing.T) {
	rules := parse(t, `events:
  zero:   {limits: [{per: ip, rate: 0/d}]}
  zerolog: {limits: [{per: ip, rate: 0/d, algorithm: sliding-log}]}
  listed: {limits: [{per: ip, rate: 3/d, deny: 192.0.2.1}]}
  leased: {limits: [{per: ip, concurrent: 1, lease: 1m}, {per: ip, rate: 5/d}]}
`)
	onEach(t, func(t *testing.T, options ...counterd.Option) {
		limiter := start(t, rules, options...)
		for _, event := range []string{"zero", "zerolog", "listed"} {
			for range 2 {
				d, err := limiter.HitN(ctx, event, visitor, 0)
				require.NoError(t, err)
				require.False(t, d.Allowed, event)
				require.Equal(t, counterd.Never, d.RetryAfter, event)
			}
		}
		d, err := limiter.HitN(ctx, "leased", visitor, 0)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.NotEmpty(t, d.Reservation)
		second, err := limiter.HitN(ctx, "leased", visitor, 0)
		require.NoError(t, err)
		require.False(t, second.Allowed)
		require.NoError(t, limiter.Release(ctx, d.Reservation))
		second, err = limiter.HitN(ctx, "leased", visitor, 0)
		require.NoError(t, err)
		require.True(t, second.Allowed)
		require.Zero(t, second.Limits[1].Count)
	})
}

func TestNumbersOfBodies(t *testing.T) {
	limiter := start(t, parse(t, "events: {e: {limits: [{per: ip, rate: 1000/d}]}}"))
	h := api.NewHandler(limiter, api.Config{})
	post := func(path, body string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		return serveOnce(h, r)
	}
	const hit, batch, add = "/v1/events/e/hit", "/v1/batch", "/v1/events/e/increment"
	const features = `"features": {"ip": "192.0.2.1"}`
	count := int64(0)
	for _, test := range []struct {
		number string
		is     int64 // -1: a fault
	}{
		{"1", 1}, {"1.0", 1}, {"1e2", 100}, {"1E+2", 100}, {"1.20e1", 12}, {"200e-2", 2}, {"0", 0}, {"0.0", 0}, {"-0", 0}, {"0e999999999999", 0}, {"0e-5", 0},
		{"1.5", -1}, {"1e-1", -1}, {"15e-1", -1}, {"1e7", -1}, {"1e999999", -1}, {"1e-999999", -1}, {"9223372036854775808", -1}, {"-1.0", -1}, {`"1"`, -1}, {"1e999999999999", -1},
	} {
		for path, body := range map[string]string{
			hit:   `{` + features + `, "cost": ` + test.number + `}`,
			batch: `{"hits": [{"event": "e", ` + features + `, "cost": ` + test.number + `}]}`,
			add:   `{` + features + `, "by": ` + test.number + `}`,
		} {
			status := post(path, body).Code
			switch {
			case path == add && test.is == 0:
				assert.Equal(t, http.StatusBadRequest, status, body)
			case test.is >= 0:
				require.Equal(t, http.StatusOK, status, body)
				count += test.is
			case path == batch && (test.number == "-1.0" || test.number == "1e7"):
				assert.Equal(t, http.StatusOK, status, "it is the hit's fault")
			default:
				assert.Equal(t, http.StatusBadRequest, status, body)
			}
		}
	}
	counted, err := limiter.Count(ctx, "e", visitor, 24*time.Hour)
	require.NoError(t, err)
	require.Equal(t, count, counted)
	at := strconv.FormatInt(time.Now().Unix(), 10) + ".0"
	assert.Equal(t, http.StatusOK, post(add, `{`+features+`, "at": `+at+`}`).Code, "a moment in Unix seconds")
}
