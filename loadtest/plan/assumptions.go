package plan

import (
	"fmt"
	"time"

	"github.com/counterd/counterd/events"
)

// assumptions returns what a plan from numbers rests on.
func (c Config) assumptions(chosen []*events.Event) []string {
	list := []string{
		"A day has the events of every other, and features that did nothing the day before, or the same: the items are as many.",
		"Each feature does the event equally often; were some to do it more often and others less, there were fewer items.",
		c.Sessions.assumption(),
		fmt.Sprintf("At the peak %g times as much comes as on the average, until the day's events have come; items are counted when that has been so for as long as their buckets live, at the most a day.", c.Peak),
		"A hit has a feature of each kind that the event's rules name; of kinds together, unless a number is given, there are as many as of the most numerous of them.",
	}
	if len(chosen) > 1 {
		list = append(list, "A number that names no event holds for each of them.")
	}
	return append(list, c.common()...)
}

func (s Sessions) assumption() string {
	if s.Events > 1 {
		return fmt.Sprintf("A feature does it in sessions of %g events that are spread over %s, and begins them at any time of the day.", s.Events, events.FormatDuration(s.Length.Round(time.Second)))
	}
	return "A feature does it at any time of the day, each time for itself: no spread makes more items, and sessions (-session-events, -session-length) make fewer."
}

// measured returns what a plan from a log rests on.
func (c Config) measured(log Log, longest time.Duration) []string {
	length := time.Duration(log.seconds()) * time.Second
	list := []string{fmt.Sprintf("What comes is what is in the log, from %s for %s: features, and how their events lie in time, are counted; items are the most that there were at any second, and the peak is the minute from %s.",
		log.First.Format(time.RFC3339), length, log.PeakAt.Format(time.RFC3339))}
	if length < longest {
		list = append(list, fmt.Sprintf("Buckets live for up to %s, longer than the log is: in the end there are more items than it shows.", longest))
	}
	return append(list, c.common()...)
}

// common returns what every plan rests on.
func (c Config) common() []string {
	list := []string{
		"Hits are far from their limits. A counter near one costs a trip more, once a second in each process; one that denies, about six trips once a second, and no items of its own.",
		fmt.Sprintf("Hits come one by one, by %d processes; those on one counter that come at the same moment, and those of a batch, share trips.", c.Processes),
	}
	if c.Costs.From != "" {
		list = append(list, c.Costs.From)
	}
	return append(list,
		fmt.Sprintf("Memcached 1.6 with its own sizes of chunks (-n, -f); %.0f%% of the items' memory is kept free, for items that have expired and are not collected yet; %s beside -m and the table of items.", c.Server.Headroom*100, bytesText(baseMemory)),
		fmt.Sprintf("Of a server's %g cores %.0f%% may be busy at the peak.", c.Server.Cores, c.Server.Busy*100),
	)
}
