// Package share has parts of a whole, as users write them: percentages.
package share

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Share is a part of a whole, in millionths.
type Share int64

// Whole is all of it.
const Whole Share = 1_000_000

// Err is returned for a text that is no share.
var Err = errors.New("it is a percentage from 0 to below 100, with at most 4 decimals, as 30 or 30%")

// Parse reads a percentage, with or without its sign: 0.1, 5%, 0.
func Parse(text string) (Share, error) {
	units, decimals, point := strings.Cut(strings.TrimSuffix(text, "%"), ".")
	if units == "" || len(units) > 2 || len(decimals) > 4 || point && decimals == "" {
		return 0, Err
	}
	n, err := strconv.ParseUint(units+decimals+strings.Repeat("0", 4-len(decimals)), 10, 32)
	if err != nil {
		return 0, Err
	}
	return Share(n), nil
}

// String writes the share as Parse reads it, without its sign.
func (s Share) String() string {
	text := fmt.Sprintf("%d.%04d", s/10_000, s%10_000)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// Of returns how many of n are that share at the most.
func (s Share) Of(n int) int { return int(int64(n) * int64(s) / int64(Whole)) }

// MarshalText writes the share as String does.
func (s Share) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the share as Parse does.
func (s *Share) UnmarshalText(text []byte) (err error) {
	*s, err = Parse(string(text))
	return err
}
