package peers

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/events"
)

const (
	// maxCount bounds the counts of an answer, and their sums: readers of JSON may round larger ones.
	maxCount = 1 << 53
	// domainPrefix begins the names of domains of -rls-config. Their entries are any text, and a key may repeat.
	domainPrefix = "rls/"
	// maxDomainFeature bounds the text of a domain's feature: 1 KiB of entries, with a colon and a plus for each.
	maxDomainFeature = 4 << 10
)

var errInvalid = errors.New("peers: the list of the peer is invalid") // no text of it: it has features

// check returns an error if the list of a peer cannot be added to others: a count is below 0 or above maxCount, an
// error is above its count, a feature is invalid or listed twice.
func check(list wire.Top) error {
	if !isCount(list.Rest) {
		return errInvalid
	}
	known := make(map[key]bool, len(list.Features))
	for _, one := range list.Features {
		at := key{one.Event, one.Feature}
		if known[at] || !isFeature(one) || !isCount(one.Count) || !isCount(one.Error) || one.Error > one.Count {
			return errInvalid
		}
		if slices.ContainsFunc(one.Limits, func(limit wire.TopLimit) bool { return !isCount(limit.Count) }) {
			return errInvalid
		}
		known[at] = true
	}
	return nil
}

func isCount(n int64) bool { return 0 <= n && n <= maxCount }

// isFeature reports whether a feature has valid kinds and values, which its text has, too.
func isFeature(one wire.TopFeature) bool {
	if strings.HasPrefix(one.Event, domainPrefix) {
		return isFeatureOfDomain(one)
	}
	if !events.ValidName(one.Event) || len(one.Features) == 0 || events.Features(one.Features).Validate() != nil {
		return false
	}
	var pairs [][2]string
	for _, kind := range slices.Sorted(maps.Keys(one.Features)) {
		pairs = append(pairs, [2]string{kind, one.Features[kind]})
	}
	counter, _ := events.CounterOf(nil, 0, pairs...)
	return counter.Feature.String() == one.Feature
}

func isFeatureOfDomain(one wire.TopFeature) bool {
	bytes := 0
	for kind, value := range one.Features {
		bytes += len(kind) + len(value)
	}
	return 0 < len(one.Features) && bytes <= len(one.Feature) && len(one.Feature) <= maxDomainFeature
}
