package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
)

// MaxLine is the most bytes of a line, its end not counted. Longer lines are
// malformed.
const MaxLine = 1 << 20

// Read yields the record of every line of the log, in the order of the log, or
// what is wrong with that line: the n-th pair is of line n. An empty line is
// malformed, too. A log that begins as gzip does is decompressed, also one of several
// such files, one behind the other.
//
// Errors that wrap ErrMalformed or ErrFiltered concern one line; any other error is of
// the reader and ends the log. Not more than one line is held in memory.
func Read(r io.Reader, format Format) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		in, err := decompressed(r)
		if err != nil {
			yield(Record{}, err)
			return
		}
		for {
			line, err := readLine(in)
			if err == io.EOF {
				return
			}
			if err != nil && !errors.Is(err, ErrMalformed) {
				yield(Record{}, fmt.Errorf("accesslog: reading: %w", err))
				return
			}
			var record Record
			if err == nil {
				record, err = format.Parse(line)
			}
			if !yield(record, err) {
				return
			}
		}
	}
}

// decompressed looks at the first bytes, not at a name: standard input has none.
func decompressed(r io.Reader) (*bufio.Reader, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	magic, err := in.Peek(2)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("accesslog: reading: %w", err)
	}
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return in, nil
	}
	unzipped, err := gzip.NewReader(in)
	if err != nil {
		return nil, fmt.Errorf("accesslog: decompressing: %w", err)
	}
	return bufio.NewReaderSize(unzipped, 64<<10), nil
}

// readLine returns the next line without its end, LF or CR LF. Of a line that is
// too long it keeps nothing and returns an error that wraps ErrMalformed; at the
// end of the log it returns io.EOF.
func readLine(in *bufio.Reader) (string, error) {
	var line []byte
	tooLong := false
	for {
		part, err := in.ReadSlice('\n')
		tooLong = tooLong || len(line)+len(part) > MaxLine+len("\r\n")
		if !tooLong {
			line = append(line, part...)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil && (err != io.EOF || len(line) == 0 && !tooLong) {
			return "", err
		}
		text := strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r")
		if tooLong || len(text) > MaxLine {
			return "", malformed(fmt.Sprintf("it is longer than %d bytes", MaxLine))
		}
		return text, nil
	}
}
