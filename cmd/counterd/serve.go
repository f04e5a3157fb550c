package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/settings"
)

// serve runs the server until the context ends.
func serve(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return serveBy(ctx, args, events.Example(), stdout, stderr)
}

// serveBy is serve, with the rules where no file of them is named.
func serveBy(ctx context.Context, args []string, unnamed *events.Rules, stdout, stderr io.Writer) (err error) {
	s, err := parseServe(args, stdout)
	if err != nil {
		return err
	}
	// From here on SIGHUP does not end the process.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	rules, err := readRules(s.rules, unnamed)
	if err != nil {
		return err
	}
	s.Log, s.Start, s.Follow, s.Asks = newLog(s.log, stderr), ctx, true, hangups
	limiter, err := counterd.New(rules, func(into *settings.Settings) { *into = s.Settings })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, limiter.Close()) }()
	return limiter.Serve(ctx)
}

// readRules returns the rules of the file, or those without one.
func readRules(path string, unnamed *events.Rules) (counterd.Rules, error) {
	if path == "" {
		return counterd.RulesOf(unnamed), nil
	}
	return counterd.ReadRules(path)
}
