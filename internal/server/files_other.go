//go:build !unix

package server

import "math"

// maxFiles returns how many files the process may have open: here no bound is known.
func maxFiles() int { return math.MaxInt }
