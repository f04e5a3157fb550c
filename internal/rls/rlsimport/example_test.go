package rlsimport_test

import (
	"fmt"
	"strings"

	"github.com/counterd/counterd/internal/rls/rlsconfig"
	"github.com/counterd/counterd/internal/rls/rlsimport"
)

func ExampleRules() {
	config, err := rlsconfig.Parse([]rlsconfig.File{{Name: "shop.yaml", Text: []byte(`
domain: shop
descriptors:
  - key: remote_address
    rate_limit: {unit: minute, requests_per_unit: 60}
  - key: remote_address
    value: 192.0.2.7
    rate_limit: {unit: minute, requests_per_unit: 600}
  - key: remote_address
    value: 198.51.100.*
    rate_limit: {unit: minute, requests_per_unit: 6}
`)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	rules, summary, err := rlsimport.Rules(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, written, _ := strings.Cut(string(rules), "\nevents:\n")
	fmt.Print(written)
	fmt.Println("limits:", summary.Limits, "differences:", summary.Differences, "left out:", summary.LeftOut)
	// Output:
	// shop:
	//     limits:
	//       - per: remote_address
	//         rate: 60/m
	//         name: "remote_address"
	//         overrides:
	//           "192.0.2.7": 600/m
	//       # shop.yaml:9: shop.remote_address_198.51.100.*, 6/m, has the limits per remote_address instead: rules have no wildcards; serve it with -rls-config
	// limits: 1 differences: 1 left out: 0
}
