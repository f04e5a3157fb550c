package service

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/counterd/counterd/events"
)

const (
	// maxTokens bounds the tokens: a request is compared with each of them.
	maxTokens = 1000
	// minSecret is the fewest letters of a token, too many to try out.
	minSecret = 16
	// maxSecret bounds its letters: headers have to hold it.
	maxSecret = 4096
	// maxTokenName bounds the letters of its name.
	maxTokenName = 64
)

// hashed begins a token that is given by its SHA-256 sum. No token itself has a colon.
const hashed = "sha256:"

// Tokens are the tokens in force, each with the classes that it is good for. They do not
// change, and hold no token: only its SHA-256 sum.
type Tokens struct{ list []token }

type token struct {
	name    string
	classes classes
	sum     [sha256.Size]byte
	line    int
}

// ParseTokens reads the text of a file of tokens: in each line a name, the classes of
// routes, comma-separated, or all, and the token, or sha256: and its SHA-256 sum in
// hexadecimal. A # begins a comment. Several lines may have one name: the old token of a
// client and its new one. The error, if any, is events.Faults, with all faults there
// are: none of them repeats what is in the file.
func ParseTokens(text []byte) (*Tokens, error) {
	t := &Tokens{}
	var faults events.Faults
	number := 0
	for line := range bytes.Lines(text) {
		number++
		line, _, _ = bytes.Cut(line, []byte("#"))
		words := strings.Fields(string(line))
		if len(words) == 0 {
			continue
		}
		one, reasons := parseToken(words)
		if len(reasons) == 0 {
			one.line = number
			reasons = t.add(one)
		}
		for _, reason := range reasons {
			faults = append(faults, events.Fault{Line: number, Reason: reason})
		}
	}
	// A file that is cut off while it is written would refuse every client.
	if len(t.list) == 0 && len(faults) == 0 {
		faults = events.Faults{{Reason: "there is no token: a line is a name, classes and a token"}}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return t, nil
}

// parseToken reads the words of a line, and returns what is wrong with them.
func parseToken(words []string) (one token, reasons []string) {
	if len(words) != 3 {
		return one, []string{fmt.Sprintf("there are %d words: a line is a name, classes and a token", len(words))}
	}
	one.name = strings.Clone(words[0]) // a part of the line would keep the token, too
	if !validTokenName(one.name) {
		reasons = append(reasons, fmt.Sprintf("the name, the first word, is 1 to %d letters, digits, _, . and -", maxTokenName))
	}
	var ok bool
	if one.classes, ok = parseClasses(words[1]); !ok {
		reasons = append(reasons, "the classes, the second word, are "+strings.Join(classNames[ClassDecide:], ", ")+", with commas and without blanks between, or all")
	}
	if one.sum, ok = parseSecret(words[2]); !ok {
		reasons = append(reasons, fmt.Sprintf("the token, the third word, is %d to %d letters, digits, -, ., _, ~, + and /, with = at the end only; or sha256: and 64 hexadecimal digits", minSecret, maxSecret))
	}
	return one, reasons
}

// add adds a token, unless it is there: which of its lines counts would be a guess.
func (t *Tokens) add(one token) []string {
	for _, other := range t.list {
		if other.sum == one.sum {
			return []string{fmt.Sprintf("the token is that of line %d", other.line)}
		}
	}
	if len(t.list) == maxTokens {
		return []string{fmt.Sprintf("there are more than %d tokens", maxTokens)}
	}
	t.list = append(t.list, one)
	return nil
}

// classes is a set of classes.
type classes uint

func (s classes) has(c Class) bool { return s&(1<<c) != 0 }

// parseClasses reads names with commas between, or all.
func parseClasses(text string) (set classes, ok bool) {
	if text == "all" {
		text = strings.Join(classNames[ClassDecide:], ",")
	}
	for name := range strings.SplitSeq(text, ",") {
		class := slices.Index(classNames[:], name)
		if class < int(ClassDecide) {
			return 0, false
		}
		set |= 1 << class
	}
	return set, true
}

func validTokenName(name string) bool {
	return len(name) <= maxTokenName && strings.Trim(name, alphanumeric+"_.-") == ""
}

const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// parseSecret returns the sum of a token, which is written as b64token of RFC 6750 is.
func parseSecret(word string) (sum [sha256.Size]byte, ok bool) {
	if digits, found := strings.CutPrefix(word, hashed); found {
		n, err := hex.Decode(sum[:], []byte(digits[:min(len(digits), 2*len(sum))]))
		return sum, err == nil && n == len(sum) && len(digits) == 2*len(sum)
	}
	letters := strings.TrimRight(word, "=")
	ok = len(word) >= minSecret && len(word) <= maxSecret && letters != "" && strings.Trim(letters, alphanumeric+"-._~+/") == ""
	return sha256.Sum256([]byte(word)), ok
}

// Len returns how many tokens there are.
func (t *Tokens) Len() int { return len(t.list) }

// find returns the token of that text. It compares the text's sum with all there are,
// each in the same time: how long that takes says nothing about any of them.
func (t *Tokens) find(text string) (found token, ok bool) {
	if t == nil {
		return token{}, false
	}
	sum := sha256.Sum256([]byte(text))
	at, matches := 0, 0
	for i := range t.list {
		match := subtle.ConstantTimeCompare(sum[:], t.list[i].sum[:])
		at = subtle.ConstantTimeSelect(match, i, at)
		matches |= match
	}
	if matches == 0 {
		return token{}, false
	}
	return t.list[at], true
}
