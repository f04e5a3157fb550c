package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/server"
	"github.com/counterd/counterd/internal/server/follow"
)

// serve runs the server until the context ends.
func serve(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s, err := parseServe(args, stdout)
	if err != nil {
		return err
	}
	return s.serve(ctx, events.Example(), stderr)
}

// serve runs the server by the flags until the context ends, with the rules if no file of them is named.
func (s *serveFlags) serve(ctx context.Context, unnamed *events.Rules, stderr io.Writer) (err error) {
	// From here on neither SIGHUP nor the end of the log's reader ends the process.
	signal.Ignore(syscall.SIGPIPE)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	rules, file := unnamed.Hashed(), follow.RulesFile{}
	if s.rules != "" {
		if rules, file, err = follow.ReadRules(s.rules); err != nil {
			return err
		}
	}
	s.Log, s.Start, s.Asks = newLog(s.log, stderr), ctx, hangups
	if w, ok := stderr.(*logWriter); ok {
		w.report(s.Log)
		s.LinesDropped = w.Dropped
	}
	server, err := server.New(rules, file, s.Settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	return server.Serve(ctx)
}
