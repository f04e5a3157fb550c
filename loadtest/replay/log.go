package replay

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/loadtest/accesslog"
)

// maxNamedLines is how many malformed lines are named by their number.
const maxNamedLines = 10

// Naming says how the host at the start of a line names a counter. The zero
// Naming is that of a server without rules of its own.
type Naming struct {
	Kind       string // of the feature; "": events.KindIP
	IPv6Prefix int    // bits of the network by which IPv6 addresses are counted; 0: events.DefaultIPv6Prefix
}

func (n Naming) kind() string {
	if n.Kind == "" {
		return events.KindIP
	}
	return n.Kind
}

func (n Naming) features(value string) events.Features {
	return events.Features{n.kind(): value}
}

// feature returns the canonical name of the counter.
func (n Naming) feature(value string) (events.Feature, error) {
	event := events.Event{Rules: []events.Rule{{Per: []string{n.kind()}, IPv6Prefix: n.IPv6Prefix}}}
	counter, err := event.Counter(n.features(value))
	return counter.Feature, err
}

// Log is an access log in memory, reduced to who did something, and when.
type Log struct {
	Lines          int
	Malformed      int   // lines that are not in the format, or whose host is not of the kind
	MalformedLines []int // the numbers of the first of them; the first line is 1

	naming    Naming
	addresses []address
	counters  []string // their features as the server names them
	events    []event  // in the order of time
}

// address is a host as it stands in the log. Several may share a counter: IPv6
// addresses of one network do.
type address struct {
	value   string
	counter uint32
}

type event struct {
	second  int64
	address uint32
}

// ReadLog reads an access log in the common or the combined format, plain or
// compressed with gzip. It goes on behind malformed lines, and returns errors of
// the reader, and that of the context when it ends.
func ReadLog(ctx context.Context, r io.Reader, naming Naming) (*Log, error) {
	log := &Log{naming: naming}
	addresses := map[string]uint32{}
	counters := map[events.Feature]uint32{}
	for entry, err := range accesslog.Read(r) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil && !errors.Is(err, accesslog.ErrMalformed) {
			return nil, err
		}
		log.Lines++
		if err != nil {
			log.malformed()
			continue
		}
		index, known := addresses[entry.Host]
		if !known {
			feature, err := naming.feature(entry.Host)
			if err != nil {
				log.malformed()
				continue
			}
			index = log.address(entry.Host, feature, counters)
			addresses[log.addresses[index].value] = index
		}
		log.events = append(log.events, event{entry.Time.Unix(), index})
	}
	slices.SortStableFunc(log.events, func(a, b event) int { return cmp.Compare(a.second, b.second) })
	return log, nil
}

func (l *Log) malformed() {
	l.Malformed++
	if len(l.MalformedLines) < maxNamedLines {
		l.MalformedLines = append(l.MalformedLines, l.Lines)
	}
}

func (l *Log) address(value string, feature events.Feature, counters map[events.Feature]uint32) uint32 {
	counter, known := counters[feature]
	if !known {
		counter = uint32(len(l.counters))
		counters[feature] = counter
		l.counters = append(l.counters, feature.String())
	}
	// The value is a part of its line, which would stay in memory as a whole.
	l.addresses = append(l.addresses, address{strings.Clone(value), counter})
	return uint32(len(l.addresses) - 1)
}

// shifted returns the events as if the last one were at the second end, without
// those before the second first, and how many those are.
func (l *Log) shifted(end, first int64) (kept []event, skipped int) {
	if len(l.events) == 0 {
		return nil, 0
	}
	shift := end - l.events[len(l.events)-1].second
	skipped = sort.Search(len(l.events), func(i int) bool { return l.events[i].second+shift >= first })
	kept = slices.Clone(l.events[skipped:])
	for i := range kept {
		kept[i].second += shift
	}
	return kept, skipped
}
