package overrides

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Records of domains of Envoy's configuration are read, and names that differ have different hashes.
func TestRecordsOfDomains(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for one, want := range map[name]bool{
		{"rls/shop", "Client-IP", "192.0.2.1"}:         true,
		{"rls/a/b c", "path", ""}:                      true,
		{"rls/", "k", "v"}:                             false,
		{"other/shop", "k", "v"}:                       false,
		{"rls/shop", "", "v"}:                          false,
		{"rls/shop", "a:b", "v"}:                       false,
		{"rls/shop", "k", strings.Repeat("v", 1025)}:   false,
		{"rls/" + strings.Repeat("d", 1025), "k", "v"}: false,
		{"rls/shop", "k", "\xff"}:                      false,
	} {
		r := record{Event: one.event, Kind: one.kind, Value: one.value, Listing: "deny", Until: now.Unix() + 60, Set: now.UnixMilli()}
		assert.Equal(t, want, r.isValid(now), "%q", one)
	}
	assert.NotEqual(t, name{"rls/a", "b/c", "v"}.hash(), name{"rls/a/b", "c", "v"}.hash())
}
