package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/internal/overrides"
)

// The routes of domains know no event, and those of events no domain.
func TestTheRoutesOfDomains(t *testing.T) {
	g := newGuarded(t)
	ask := func(method, target, body, class string) int {
		return asWith(t, g.client, method, target, strings.NewReader(body), secret(class)).Code
	}
	const deny = `{"features": {"Client": "a"}, "verdict": "deny", "for": "1h"}`
	for _, domain := range []string{"nothing", "url_shorten"} {
		of := "/v1/events/rls/" + domain
		assert.Equal(t, 404, ask("GET", of, "", "rules"), domain)
		assert.Equal(t, 404, ask("GET", of+"/explain?feature=Client:a", "", "see"), domain)
		assert.Equal(t, 404, ask("DELETE", of+"/counters?feature=Client:a", "", "reset"), domain)
		assert.Equal(t, 404, ask("POST", of+"/override", deny, "override"), domain)
		assert.Equal(t, 200, ask("DELETE", of+"/override?feature=Client:a", "", "override"), "the configuration may have had it")
	}
	assert.Equal(t, 404, ask("GET", "/v1/events/shop", "", "rules"))
	// The text says what is unknown, and which names and routes there are.
	for target, class := range map[string]string{
		"shop/count?feature=Client:a&window=1m": "rules", "shop/history": "rules", "shop/": "rules", "nothing": "rules", "shop//explain?feature=Client:a": "see",
	} {
		w := asWith(t, g.client, "GET", "/v1/events/rls/"+target, nil, secret(class))
		assert.Equal(t, "No domain of this name is known: its name is all between rls/ and the end of the path, or /explain, /counters or /override there. "+
			"GET /v1/events lists the domains.", problem(t, w, 404).Detail, target)
	}
	for i := range overrides.Max {
		body := fmt.Sprintf(`{"features": {"Client": "%d"}, "verdict": "deny", "for": "1h"}`, i)
		assert.Equal(t, 200, ask("POST", "/v1/events/rls/shop/override", body, "override"))
	}
	assert.Equal(t, 409, ask("POST", "/v1/events/rls/shop/override", deny, "override"))
}
