// Command counterd serves exact counters over HTTP.
//
// This package only wires: flags to a store, the store to counters, the counters
// to a server. See counterd -h.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the default is back: a second one ends at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the command without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	command, rest := serve, args
	if len(args) > 0 {
		switch args[0] {
		case "keys":
			command, rest = keys, args[1:]
		case "validate":
			command, rest = validate, args[1:]
		}
	}
	err := command(ctx, rest, stdout, stderr)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.Is(err, errUsage):
		fmt.Fprintf(stderr, "counterd: %v (counterd -h shows how)\n", err)
		return exitUsage
	}
	fmt.Fprintf(stderr, "counterd: %v\n", err)
	return exitFailed
}
