package rlsconfig_test

import (
	"fmt"

	"github.com/counterd/counterd/internal/rls/rlsconfig"
)

func ExampleParse() {
	config, err := rlsconfig.Parse([]rlsconfig.File{{Name: "shop.yaml", Text: []byte(`
domain: shop
descriptors:
  - key: path
    value: /files/*
    share_threshold: true
    descriptors:
      - key: user
        rate_limit: {unit: minute, requests_per_unit: 10}
`)}})
	if err != nil {
		fmt.Println(err)
		return
	}
	limit, counted := config.Find("shop", []rlsconfig.Entry{{Key: "path", Value: "/files/a.pdf"}, {Key: "user", Value: "ann"}})
	fmt.Println(limit, limit.N, limit.Window())
	fmt.Println(counted)
	// Output:
	// shop.path_/files/*.user 10 1m0s
	// [{path /files/*} {user ann}]
}

// All faults of all files are reported at once, each with its place.
func ExampleParse_faults() {
	_, err := rlsconfig.Parse([]rlsconfig.File{{Name: "shop.yaml", Text: []byte(`
domain: shop
descriptors:
  - key: user
    rate_limits: {unit: minutes, requests_per_unit: 10}
`)}})
	fmt.Println(err)
	// Output:
	// line 5, column 5: shop.yaml: descriptors[0]: unknown key "rate_limits": did you mean "rate_limit"?
	// line 5, column 25: shop.yaml: descriptors[0].rate_limit.unit: unknown unit: did you mean "minute"?
}
