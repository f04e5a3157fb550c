package accesslog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/counterd/counterd/events"
)

// maxPlaces is how many malformed lines are named by their number.
const maxPlaces = 10

// ErrFormat is returned where no line at all is in the format.
var ErrFormat = errors.New("accesslog: no line is in the format")

// Log is a log in memory, reduced to who did something, and when: 16 bytes a line, and
// each actor once.
type Log struct {
	Lines     int
	Malformed int     // lines that are not in the format, or with a value that its kind does not take
	Places    []Place // of the first of them

	// Actors are who did something, each once, as the log has them, or nobody at all:
	// without features. They are not to be changed.
	Actors []events.Features
	Events []Event // in the order of time; those of one moment in that of the log
}

// Event is a line of a log.
type Event struct {
	Micros int64  // since 1970
	Actor  uint32 // index of Actors
}

// Time returns when it was, in UTC.
func (e Event) Time() time.Time { return time.UnixMicro(e.Micros).UTC() }

// Second returns when it was, in whole seconds since 1970.
func (e Event) Second() int64 { return time.UnixMicro(e.Micros).Unix() }

// Place is where a line stands.
type Place struct {
	File string `json:"file,omitempty"` // "" where there is but one
	Line int    `json:"line"`           // the first one is 1
}

func (p Place) String() string {
	if p.File == "" {
		return fmt.Sprint(p.Line)
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Input is a part of a log.
type Input struct {
	Name string
	Open func() (io.ReadCloser, error)
}

// File is a file by its name.
func File(name string) Input {
	return Input{name, func() (io.ReadCloser, error) { return os.Open(name) }}
}

// Stream is what is not to be opened or closed, as standard input.
func Stream(name string, r io.Reader) Input {
	return Input{name, func() (io.ReadCloser, error) { return io.NopCloser(r), nil }}
}

// ReadLog reads the inputs, one after the other. It goes on behind malformed lines, and
// returns errors of the inputs, and that of the context when it ends. If all lines are
// malformed, and there is one, the error wraps ErrFormat, and the log says where they are.
func ReadLog(ctx context.Context, format Format, mapping Mapping, inputs ...Input) (*Log, error) {
	loading := &loading{mapping: mapping, known: map[string]uint32{}, log: &Log{}}
	for _, input := range inputs {
		if len(inputs) > 1 {
			loading.file = input.Name
		}
		if err := loading.read(ctx, format, input); err != nil {
			return nil, err
		}
	}
	log := loading.log
	slices.SortStableFunc(log.Events, func(a, b Event) int { return cmp.Compare(a.Micros, b.Micros) })
	if log.Lines > 0 && log.Malformed == log.Lines {
		return log, fmt.Errorf("%w: wanted is %s; what is wrong with the first of %d lines: %s",
			ErrFormat, format, log.Lines, loading.first)
	}
	return log, nil
}

// All returns who did something, and when, in the order of time.
func (l *Log) All() iter.Seq2[time.Time, events.Features] {
	return func(yield func(time.Time, events.Features) bool) {
		for _, e := range l.Events {
			if !yield(e.Time(), l.Actors[e.Actor]) {
				return
			}
		}
	}
}

// loading is a log that is being read.
type loading struct {
	mapping Mapping
	known   map[string]uint32 // actors, by their values
	log     *Log
	file    string
	first   string // fault
	space   []byte
}

func (l *loading) read(ctx context.Context, format Format, input Input) error {
	in, err := input.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	line := 0
	for record, err := range Read(in, format) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && !errors.Is(err, ErrMalformed) {
			return fmt.Errorf("%s: %w", input.Name, err)
		}
		line++
		l.log.Lines++
		if err == nil {
			err = l.add(record)
		}
		if err != nil {
			l.malformed(line, err)
		}
	}
	return nil
}

func (l *loading) add(record Record) error {
	key := l.key(record)
	actor, known := l.known[string(key)]
	if !known {
		features, err := l.mapping.Features(record)
		if err != nil {
			return err
		}
		// A value is a part of its line, which would stay in memory as a whole.
		for kind, value := range features {
			features[kind] = strings.Clone(value)
		}
		actor = uint32(len(l.log.Actors))
		l.log.Actors = append(l.log.Actors, features)
		l.known[string(key)] = actor
	}
	l.log.Events = append(l.log.Events, Event{record.Time.UnixMicro(), actor})
	return nil
}

// key returns the values of the mapping's fields, as one text that lives until the next.
func (l *loading) key(record Record) []byte {
	l.space = l.space[:0]
	for _, k := range l.mapping {
		value := k.of(record)
		l.space = strconv.AppendInt(l.space, int64(len(value)), 10)
		l.space = append(append(l.space, ':'), value...)
	}
	return l.space
}

func (l *loading) malformed(line int, fault error) {
	if l.log.Malformed++; l.log.Malformed == 1 {
		l.first = strings.TrimPrefix(fault.Error(), ErrMalformed.Error()+": ")
	}
	if len(l.log.Places) < maxPlaces {
		l.log.Places = append(l.log.Places, Place{l.file, line})
	}
}
