//go:build !linux

package markedtest

const manyLoopbacks = false
