// Package rls serves Envoy's RateLimitService v3, by which Envoy, Istio and Contour ask whether a
// request may pass, over a [service.Service]. A domain has the descriptors of a configuration of
// envoyproxy/ratelimit (package rlsconfig), or is an event of the rules.
//
// One request is one decision over all of its descriptors: if one denies, none counts.
package rls
