package rlsconfig

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/counterd/counterd/events"
)

// FuzzParse holds any file against the oracle: what is read without a fault is what a struct of the
// format reads, and finds what the oracle finds in that.
func FuzzParse(f *testing.F) {
	f.Add(matching, "user", "anna")
	f.Add("domain: d\ndescriptors:\n  - &a\n    key: a\n    rate_limit: &r {unit: day, requests_per_unit: 1}\n"+
		"  - {<<: *a, value: 'b*', share_threshold: yes}\n  - {key: c, rate_limit: {<<: [*r], unlimited: false}}\n", "a", "bc")
	f.Add("domain: &d [*d]\ndescriptors: *d", "", "")
	f.Add("domain: d\ndescriptors: [{key: 1, value: 0x1, metadata: {a: [1.5, ~, {b: 2001-01-01}]}}]", "1", "0x1")
	f.Fuzz(func(t *testing.T, text, key, value string) {
		c, err := Parse([]File{{"f.yaml", []byte(text)}})
		if err != nil {
			var faults events.Faults
			require.ErrorAs(t, err, &faults)
			for _, fault := range faults {
				require.Contains(t, fault.Error(), "f.yaml")
				require.NotEmpty(t, fault.Reason)
			}
			return
		}
		require.Len(t, c.Domains(), 1)
		require.NotEmpty(t, c.Domains()[0])
		for _, limit := range c.limits {
			require.Equal(t, limit.Unlimited, limit.Window() == 0)
			require.LessOrEqual(t, limit.Window(), events.MaxWindow)
			require.NotEmpty(t, limit.String())
		}
		var oracle struct {
			Domain      string
			Descriptors []spec
		}
		// The oracle knows the tags that turn text into other text, and fewer keys of mappings.
		if err := yaml.Unmarshal([]byte(text), &oracle); err != nil || strings.Contains(text, "!") {
			return
		}
		require.Equal(t, oracle.Domain, c.Domains()[0])
		descriptor := []Entry{{key, value}}
		for list := oracle.Descriptors; ; {
			n, found, counted := slowFind(oracle.Descriptors, descriptor)
			limit, got := c.Find(oracle.Domain, descriptor)
			require.Equal(t, found, limit != nil, "%q", descriptor)
			if found && !limit.Unlimited {
				require.Equal(t, n, limit.N, "%q", descriptor)
			}
			require.Equal(t, counted, got, "%q", descriptor)
			if len(list) == 0 || len(descriptor) > 50 {
				break
			}
			// Deeper, along one of the descriptors.
			next := list[len(key)%len(list)]
			path := descriptor
			if len(descriptor) == 1 && descriptor[0] == (Entry{key, value}) {
				path = nil
			}
			descriptor = append(slices.Clone(path), Entry{next.Key, strings.ReplaceAll(next.Value, "*", value)})
			list = next.Descriptors
		}
	})
}
