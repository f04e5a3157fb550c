package suggest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Share is a part of a whole, in millionths.
type Share int64

// whole is all of it.
const whole Share = 1_000_000

// DefaultDeny is the share of features that a suggestion denies at the most: 0.1%.
const DefaultDeny = whole / 1000

// ErrShare is returned for a text that is no share.
var ErrShare = errors.New("suggest: it is a percentage from 0 to below 100, with at most 4 decimals")

// ParseShare reads a percentage: 0.1, 5, 0.
func ParseShare(text string) (Share, error) {
	units, decimals, point := strings.Cut(text, ".")
	if units == "" || len(units) > 2 || len(decimals) > 4 || point && decimals == "" {
		return 0, ErrShare
	}
	n, err := strconv.ParseUint(units+decimals+strings.Repeat("0", 4-len(decimals)), 10, 32)
	if err != nil {
		return 0, ErrShare
	}
	return Share(n), nil
}

// String writes the share as ParseShare reads it.
func (s Share) String() string {
	text := fmt.Sprintf("%d.%04d", s/10_000, s%10_000)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// MarshalText writes the share as String does.
func (s Share) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// of returns how many of n are that share at the most.
func (s Share) of(n int) int { return int(int64(n) * int64(s) / int64(whole)) }
