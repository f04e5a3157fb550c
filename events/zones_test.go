package events_test

import (
	"archive/zip"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
)

// zones returns all zones of the time zone database that Go brings along.
func zones(t *testing.T) (all []*time.Location) {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	files, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	require.NoError(t, err)
	defer files.Close()
	for _, file := range files.File {
		if strings.HasSuffix(file.Name, "/") {
			continue
		}
		zone, err := time.LoadLocation(file.Name)
		require.NoError(t, err, file.Name)
		all = append(all, zone)
	}
	require.Greater(t, len(all), 500)
	return all
}

var unitLengths = []int64{events.HourSeconds, events.DaySeconds, events.WeekSeconds, events.MonthSeconds}

// In every zone, around each change of its offset and at random moments of ten years and more, each
// second is in one window, windows are adjacent, and they begin where package time says that the
// unit begins.
func TestCalendarsOfAllZones(t *testing.T) {
	from, to := time.Date(2016, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2037, 1, 1, 0, 0, 0, 0, time.UTC)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, zone := range zones(t) {
		var moments []int64
		for at := from.In(zone); at.Before(to); {
			_, end := at.ZoneBounds()
			if end.IsZero() {
				break
			}
			for _, away := range []int64{-86400, -3601, -3600, -1801, -1800, -1, 0, 1, 1799, 1800, 3599, 3600, 86400} {
				moments = append(moments, end.Unix()+away)
			}
			at = end
		}
		for range 30 {
			moments = append(moments, from.Unix()+rng.Int64N(to.Unix()-from.Unix()))
		}
		for _, second := range moments {
			for _, length := range unitLengths {
				requireWindow(t, second, length, zone)
			}
		}
	}
}

// requireWindow requires that the windows around the second tile the time and keep to the calendar.
func requireWindow(t *testing.T, second, length int64, zone *time.Location) {
	t.Helper()
	around := func(second int64) [2]int64 {
		first, last := events.FixedWindowAround(second, length, zone)
		return [2]int64{first, last}
	}
	w := around(second)
	of := func() string {
		return strings.Join([]string{time.Unix(second, 0).In(zone).String(), zone.String(), events.CalendarUnit(length)}, ", ")
	}
	if w[0] > second || w[1] < second || w[1]-w[0] >= events.LongestWindow(length, zone) {
		require.Fail(t, "not around it", "%s: %v", of(), w)
	}
	if around(w[0]) != w || around(w[1]) != w || around(w[0] - 1)[1] != w[0]-1 || around(w[1] + 1)[0] != w[1]+1 {
		require.Fail(t, "windows do not tile the time", "%s: %v", of(), w)
	}
	if start, begins := startOf(second, length, zone); !begins(w[0]) {
		require.Fail(t, "another start than time.Date", "%s: %s, time has %s", of(), time.Unix(w[0], 0).In(zone), start)
	}
}

// startOf returns when the unit of the calendar begins that holds the second, by package time, and
// whether a window begins there. If the clock never shows its midnight, or shows it twice, time.Date
// takes one of two moments: the unit begins when the clock first shows its day.
func startOf(second, length int64, zone *time.Location) (start time.Time, begins func(int64) bool) {
	t := time.Unix(second, 0).In(zone)
	year, month, day := t.Date()
	hour := 0
	switch length {
	case events.HourSeconds:
		hour = t.Hour()
	case events.WeekSeconds:
		for day--; time.Date(year, month, day+1, 12, 0, 0, 0, time.UTC).Weekday() != time.Monday; {
			day--
		}
		day++
	case events.MonthSeconds:
		day = 1
	}
	start = time.Date(year, month, day, hour, 0, 0, 0, zone)
	return start, func(first int64) bool {
		is, before := time.Unix(first, 0).In(zone), time.Unix(first-1, 0).In(zone)
		if length == events.HourSeconds { // it may come twice, or begin with a change by half an hour
			since := time.Duration(t.Minute()*60+t.Second()) * time.Second
			return t.Sub(is) == since || t.Sub(is) < since && offsetOf(is) != offsetOf(before) || is.Equal(start)
		}
		if is.Equal(start) && is.Hour() == 0 {
			return true
		}
		date := time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
		shows := func(t time.Time) time.Time { return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC) }
		odd := offsetOf(is) != offsetOf(before) || offsetOf(start) != offsetOf(is) || !start.Equal(is) && start.Hour() != 0
		return odd && !shows(is).Before(date) && shows(before).Before(date)
	}
}

func offsetOf(t time.Time) int {
	_, offset := t.Zone()
	return offset
}

// Windows that the calendar makes longer or shorter than usual.
func TestUnusualWindows(t *testing.T) {
	for _, test := range []struct {
		zone, at, first string
		unit            int64
		length          time.Duration
	}{
		{"Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", events.DaySeconds, 23 * time.Hour},
		{"Europe/Berlin", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", events.DaySeconds, 25 * time.Hour},
		{"Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T00:00:00Z", events.HourSeconds, time.Hour},
		{"Europe/Berlin", "2026-10-25T01:30:00Z", "2026-10-25T01:00:00Z", events.HourSeconds, time.Hour},
		{"Europe/Berlin", "2026-10-31T23:30:00Z", "2026-10-31T23:00:00Z", events.MonthSeconds, 30 * 24 * time.Hour},
		{"Europe/Berlin", "2026-10-15T00:00:00Z", "2026-09-30T22:00:00Z", events.MonthSeconds, 31*24*time.Hour + time.Hour},
		{"Europe/Berlin", "2026-03-29T12:00:00Z", "2026-03-22T23:00:00Z", events.WeekSeconds, 7*24*time.Hour - time.Hour},
		{"Australia/Lord_Howe", "2026-04-04T15:10:00Z", "2026-04-04T15:00:00Z", events.HourSeconds, 30 * time.Minute}, // 1:30 comes twice
		{"Australia/Lord_Howe", "2026-10-04T15:00:00Z", "2026-10-04T13:00:00Z", events.DaySeconds, 24 * time.Hour},
		{"Australia/Lord_Howe", "2026-10-03T15:40:00Z", "2026-10-03T15:30:00Z", events.HourSeconds, 30 * time.Minute},
		{"Australia/Lord_Howe", "2026-10-03T15:40:00Z", "2026-10-03T13:30:00Z", events.DaySeconds, 23*time.Hour + 30*time.Minute},
		{"America/Havana", "2026-03-08T12:00:00Z", "2026-03-08T05:00:00Z", events.DaySeconds, 23 * time.Hour}, // no midnight
		{"America/Havana", "2026-11-01T12:00:00Z", "2026-11-01T04:00:00Z", events.DaySeconds, 25 * time.Hour}, // two of them
		{"America/Sao_Paulo", "2018-02-18T02:30:00Z", "2018-02-17T02:00:00Z", events.DaySeconds, 25 * time.Hour},
		{"America/St_Johns", "2010-11-07T02:40:00Z", "2010-11-07T02:30:00Z", events.DaySeconds, 25 * time.Hour}, // back over midnight at 0:01
		{"Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", events.DaySeconds, 24 * time.Hour},
		{"Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", events.DaySeconds, 24 * time.Hour}, // the 31st
		{"Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-26T10:00:00Z", events.WeekSeconds, 6 * 24 * time.Hour},
		{"Asia/Kathmandu", "2026-02-10T00:00:00Z", "2026-01-31T18:15:00Z", events.MonthSeconds, 28 * 24 * time.Hour},
		{"Africa/Monrovia", "1971-06-01T12:00:00Z", "1971-06-01T00:44:30Z", events.DaySeconds, 24 * time.Hour},
	} {
		zone, err := time.LoadLocation(test.zone)
		require.NoError(t, err)
		at, err := time.Parse(time.RFC3339, test.at)
		require.NoError(t, err)
		first, last := events.FixedWindowAround(at.Unix(), test.unit, zone)
		assert.Equal(t, test.first, time.Unix(first, 0).UTC().Format(time.RFC3339), "%s, %s", test.zone, test.at)
		assert.Equal(t, test.length, time.Duration(last+1-first)*time.Second, "%s, %s", test.zone, test.at)
	}
}

// No window of the next ten years has a turn within a step of a precision that has no fault, in no
// zone.
func TestPrecisionOfCalendars(t *testing.T) {
	all := zones(t)
	for _, precision := range []int64{1, 60, 3600} {
		fine := 0
		for _, zone := range all {
			if events.FixedWindowFault(events.HourSeconds, precision, zone) != "" {
				continue
			}
			fine++
			for at := time.Date(2026, 1, 1, 0, 0, 0, 0, zone); at.Year() < 2036; {
				for _, away := range []int64{-3600, -1, 0, 3599} {
					for _, length := range unitLengths[:2] {
						first, _ := events.FixedWindowAround(at.Unix()+away, length, zone)
						require.Zero(t, first%precision, "%s", zone)
					}
				}
				_, end := at.ZoneBounds()
				if end.IsZero() {
					break
				}
				at = end
			}
		}
		if precision < 3600 {
			assert.Len(t, all, fine)
		} else {
			assert.Less(t, fine, len(all)-20)
			assert.Greater(t, fine, len(all)*9/10)
		}
	}
	for _, name := range []string{"Asia/Kathmandu", "Asia/Kolkata", "Australia/Lord_Howe"} {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		assert.NotEmpty(t, events.FixedWindowFault(events.MonthSeconds, 3600, zone), name)
	}
}
