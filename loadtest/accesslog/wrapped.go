package accesslog

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// isoTime is a time as in RFC 3339, whose zone may lack the colon.
const isoTime = `\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)`

// heads matches what containers and syslog daemons write in front of a program's line: Compose the name of the
// service, RFC 5424 and the syslogs before it, also busybox's with the facility or without the host, their heads;
// docker logs -t and the runtimes of Kubernetes (CRI) the time.
var heads = regexp.MustCompile(`^(?:` + strings.Join([]string{
	`(?:\x1b\[[\d;]*m)*[\w.-]+ +\|(?:\x1b\[[\d;]*m)* ?(?:\x1b\[[\d;]*m)*`,
	`<\d+>1 \S+ \S+ \S+ \S+ \S+ (?:-|\[.*?\]) ` + "(?:\ufeff)?",
	`(?:<\d+>)?(?:[A-Z][a-z]{2} [ \d]\d [\d:]{8} (?:[\w.:-]+ )?(?:\w+\.\w+ )?|` + isoTime + ` [\w.:-]+ )` +
		`[\w./@-]+(?:\[\d+\])?: `,
	isoTime + ` (?:(?:stdout|stderr) [FP](?::\S*)? )?`,
}, "|") + `)`)

// dockerLog is a line of Docker's json-file driver.
type dockerLog struct {
	Log    *string           `json:"log"`
	Stream string            `json:"stream"`
	Attrs  map[string]string `json:"attrs"`
	Time   time.Time         `json:"time"`
}

// unwrap returns a line without what a container or a syslog daemon has added, and reports whether there was anything.
func unwrap(line string) (inner string, ok bool) {
	if strings.HasPrefix(line, `{"log":"`) {
		var entry dockerLog
		if err := json.Unmarshal([]byte(line), &entry, json.RejectUnknownMembers(true)); err == nil && entry.Log != nil {
			return strings.TrimRight(*entry.Log, "\r\n"), true
		}
		return line, false
	}
	head := heads.FindString(line)
	return line[len(head):], head != ""
}

// criHead matches what a runtime of Kubernetes (CRI) writes in front of a line: its stream, and F, or P if the line goes
// on in the next one of the stream.
var criHead = regexp.MustCompile(`^` + isoTime + ` (stdout|stderr) ([FP])(?::\S*)? `)

// partJoiner joins the lines that CRI has cut into parts.
type partJoiner struct {
	parts map[string]string // by stream: the parts of a line so far; of one that is too long MaxLine + 1 bytes
}

// join returns a line as it was before CRI cut it, behind the head of its last part, and true; or false if line is an
// earlier part. If the line is longer than MaxLine, the error is ErrMalformed.
func (j *partJoiner) join(line string) (joined string, complete bool, err error) {
	if !strings.Contains(line[:min(len(line), 64)], " std") {
		return line, true, nil // as most
	}
	at := criHead.FindStringSubmatchIndex(line)
	if at == nil {
		return line, true, nil
	}
	head, stream, isPart := line[:at[1]], line[at[2]:at[3]], line[at[4]] == 'P'
	before, isRest := j.parts[stream]
	if !isPart && !isRest {
		return line, true, nil
	}
	text := before
	if len(text) <= MaxLine {
		text += line[at[1]:min(len(line), at[1]+MaxLine+1-len(text))]
	}
	if isPart {
		if j.parts == nil {
			j.parts = map[string]string{}
		}
		j.parts[stream] = text
		return "", false, nil
	}
	delete(j.parts, stream)
	if len(text) > MaxLine {
		return "", true, errLong
	}
	return head + text, true, nil
}

// maxHeads bounds how many of them are in front of each other, as those of Compose, a runtime and a syslog daemon.
const maxHeads = 4

// auto takes lines as JSON or, by how they begin, in the combined format, without their heads.
type auto struct{ json, line Format }

func (f *auto) Parse(line string) (time.Time, []string, error) {
	for range maxHeads {
		line, _ = unwrap(line)
	}
	if strings.HasPrefix(strings.TrimLeft(line, " \t"), "{") {
		return f.json.Parse(line)
	}
	return f.line.Parse(line)
}

func (f *auto) String() string {
	if line := f.line.String(); line != "" {
		return line + ", or " + f.json.String()
	}
	return f.json.String()
}

// wrapped reads the lines of a format whose own lines have heads: others are removed from lines that it filters.
type wrapped struct{ Format }

func (f wrapped) Parse(line string) (time.Time, []string, error) {
	at, values, err := f.Format.Parse(line)
	for range maxHeads {
		inner, ok := unwrap(line)
		if !ok || !errors.Is(err, ErrFiltered) {
			break
		}
		line = inner
		at, values, err = f.Format.Parse(line)
	}
	return at, values, err
}

// unreadable are beginnings of logs that are not text in UTF-8, and the programs that make them so.
var unreadable = []struct{ begin, is, program string }{
	{"\xff\xfe", inUTF16, "iconv -f UTF-16 -t UTF-8"},
	{"\xfe\xff", inUTF16, "iconv -f UTF-16 -t UTF-8"},
	{"BZh", "compressed by bzip2, and plain text or gzip is wanted", "bzip2 -dc"},
	{"\xfd7zXZ\x00", "compressed by xz, and plain text or gzip is wanted", "xz -dc"},
	{"\x28\xb5\x2f\xfd", "compressed by zstd, and plain text or gzip is wanted", "zstd -dc"},
	{"PK\x03\x04", "compressed by zip, and plain text or gzip is wanted", "unzip -p"},
}

const inUTF16 = "text in UTF-16, and UTF-8 is wanted"

// checkReadable returns an error that names the program to use if a log with this beginning cannot be read.
func checkReadable(begin string) error {
	for _, u := range unreadable {
		isBzip2 := len(begin) > 4 && begin[3] >= '1' && begin[3] <= '9' && (begin[4] == '1' || begin[4] == 0x17)
		if strings.HasPrefix(begin, u.begin) && (u.begin != "BZh" || isBzip2) {
			return unread("it is "+u.is, u.program)
		}
	}
	if len(begin) < 4 {
		return nil
	}
	switch zeros := [4]bool{begin[0] == 0, begin[1] == 0, begin[2] == 0, begin[3] == 0}; zeros {
	case [4]bool{false, true, false, true}:
		return unread("it is "+inUTF16, "iconv -f UTF-16LE -t UTF-8")
	case [4]bool{true, false, true, false}:
		return unread("it is "+inUTF16, "iconv -f UTF-16BE -t UTF-8")
	}
	return nil
}

// unread returns an error that says why a log is not read, and which program makes it readable.
func unread(reason, program string) error {
	return fmt.Errorf("%s: %s FILE | loadtest ... -", reason, program)
}
