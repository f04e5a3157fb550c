//go:build testall

package main

import (
	"os"
	"syscall"
	"testing"
)

func TestInterruptsOfChaos(t *testing.T) {
	interruptOwn(t, syscall.SIGTERM, 5, 3000, []string{"violations   none"}, "verify", "-duration", "1h", "-servers", "3", "-replicas", "2", "-chaos")
}

func TestInterruptsOfASoak(t *testing.T) {
	interruptOwn(t, os.Interrupt, 5, 500, []string{"violations   none", "interrupted: what was seen", "not compared in the end"}, "verify", "-soak", "1h")
}
