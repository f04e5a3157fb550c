package rulesfile_test

import (
	"fmt"

	"github.com/counterd/counterd/events/rulesfile"
)

// All faults of a file are reported at once, each with its place.
func ExampleParse_faults() {
	_, err := rulesfile.Parse([]byte(`events:
  login_failed:
    limits:
      - per: email
        rat: 3/day
      - per: ip
        rate: 20/d
        precision: week
`))
	fmt.Println(err)
	// Output:
	// line 5, column 9: events.login_failed.limits[0].rat: unknown key: did you mean rate?
	// line 5, column 14: events.login_failed.limits[0].rat: a day is written d, as in 3/d
	// line 8, column 20: events.login_failed.limits[1].precision: it is second, minute or hour
}
