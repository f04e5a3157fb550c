//go:build !unix

package main

import "math"

// maxFiles returns how many files the process may have open: nobody says.
func maxFiles() int { return math.MaxInt }
