package events_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/events/rulesfile"
)

// A calendar implies the algorithm, names the windows of its limits, and has the counters remember the
// longest of them.
func TestLimitsOfACalendar(t *testing.T) {
	rules, err := rulesfile.Parse([]byte(`
events:
  api:
    limits:
      - {per: tenant, rate: [1000/h, 9000/d, 50000/week, 100000/month], calendar: Europe/Berlin, overrides: {a: 5/month}}
      - {per: key, rate: [5/week, 9/month]}
  long:
    limits: [{per: ip, rate: 5/month, calendar: UTC}]
  short:
    limits: [{per: ip, rate: 5/h, calendar: UTC, algorithm: fixed-window}]
`))
	require.NoError(t, err)
	event := rules.Events["api"]
	var names, rates []string
	for _, limit := range event.Rules[0].Limits {
		names, rates = append(names, limit.Name+" in a "+limit.WindowName()), append(rates, events.FormatRate(limit))
		assert.Equal(t, "fixed-window", limit.Algorithm)
		assert.Equal(t, "Europe/Berlin", limit.Calendar.String())
	}
	assert.Equal(t, []string{
		"tenant-1000-per-hour in a hour", "tenant-9000-per-day in a day", "tenant-50000-per-week in a week", "tenant-100000-per-month in a month",
	}, names)
	assert.Equal(t, []string{"1000/h", "9000/d", "50000/week", "100000/month"}, rates)
	assert.Equal(t, "tenant-5-per-month", event.Rules[0].Overrides["a"][0].Name)
	assert.Equal(t, 31*24*time.Hour+3*time.Hour, event.Remembered())
	assert.Equal(t, 31*24*time.Hour+3*time.Hour, rules.Events["long"].Remembered())
	assert.Equal(t, time.Hour, rules.Events["short"].Remembered())

	october := time.Date(2026, 10, 15, 12, 0, 0, 0, time.UTC).Unix()
	assert.Equal(t, 31*24*time.Hour+time.Hour, event.Rules[0].Limits[3].WindowAt(october))

	plain := event.Rules[1].Limits
	assert.Equal(t, []string{"key-5-per-168h", "key-9-per-720h"}, []string{plain[0].Name, plain[1].Name}, "without a calendar they slide")
	assert.Nil(t, plain[0].Calendar)
	assert.Equal(t, 30*24*time.Hour, plain[1].WindowAt(october))
}

// A calendar that a reload brings is incomplete while its longest window may reach back before it, if
// the counter was not kept for as long; else it is complete at once.
func TestACalendarAfterAReload(t *testing.T) {
	const now = 1_790_000_000
	parse := func(limits string) *events.Rules {
		rules, err := rulesfile.Parse([]byte("events: {e: {retention: 32d, limits: [" + limits + "]}}"))
		require.NoError(t, err)
		return rules
	}
	old := parse("{per: ip, rate: 5/d}")
	sinceOf := func(rules *events.Rules) int64 { return rules.Events["e"].Rules[0].Limits[0].Since }
	assert.Zero(t, sinceOf(events.Succeed(old, parse("{per: ip, rate: 9/month, calendar: UTC}"), now)), "the buckets are there")
	old.Events["e"].Retention = 30 * 24 * time.Hour
	next := events.Succeed(old, parse("{per: ip, rate: 9/month, calendar: UTC}"), now)
	assert.EqualValues(t, now, sinceOf(next))
	assert.EqualValues(t, now, sinceOf(events.Succeed(next, next, now+31*86400)), "a month may be as long")
	assert.Zero(t, sinceOf(events.Succeed(next, next, now+31*86400+3*3600)))
}

// A sliding limit never makes one of a calendar idle that may be longer.
func TestWarningsOfCalendars(t *testing.T) {
	for limits, warned := range map[string]bool{
		"{per: ip, rate: 5/d}, {per: ip, rate: 9/d, calendar: UTC}":       false, // a day has up to 27 hours
		"{per: ip, rate: 5/27h}, {per: ip, rate: 9/d, calendar: UTC}":     true,
		"{per: ip, rate: 5/30d}, {per: ip, rate: 9/month, calendar: UTC}": false,
		"{per: ip, rate: 5/30d}, {per: ip, rate: 9/week, calendar: UTC}":  true,
	} {
		rules, err := rulesfile.Parse([]byte("events: {e: {limits: [" + limits + "]}}"))
		require.NoError(t, err)
		assert.Equal(t, warned, len(rules.Warnings) > 0, limits)
	}
}
