// Package markedtest makes values of features that no text holds by accident, and finds
// them where they must not be: in logs, metrics, spans.
package markedtest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Marks are the values of one test. The zero Marks has none. It is safe for concurrent use.
type Marks struct {
	mu    sync.Mutex
	forms map[string]string // what is looked for, in small letters: the value that it is of
}

// Word returns a new value of letters.
func (m *Marks) Word() string { return m.Add(letters(16)) }

// Email returns a new address of mail.
func (m *Marks) Email() string { return m.Add(letters(12) + "@" + letters(8) + ".example") }

// Address returns a new IPv4 address that is nobody's (RFC 2544).
func (m *Marks) Address() string {
	return m.Add(netip.AddrFrom4([4]byte{198, 18, byte(100 + rand.N(156)), byte(100 + rand.N(156))}).String())
}

// Address6 returns a new IPv6 address for documents (RFC 3849), in a network of its own.
func (m *Marks) Address6() string {
	address := netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, letter(), letter(), letter(), letter(), 8: letter(), 15: 1})
	m.Add(netip.PrefixFrom(address, 64).Masked().String()) // by which it is counted
	return m.Add(address.String())
}

// Loopback returns a new address of this machine, for a client to come from. Only Linux
// takes all of 127/8 for its own: elsewhere it is 127.0.0.1, and not looked for.
func (m *Marks) Loopback() string {
	if !manyLoopbacks {
		return "127.0.0.1"
	}
	return m.Add(netip.AddrFrom4([4]byte{127, byte(100 + rand.N(100)), byte(100 + rand.N(100)), byte(100 + rand.N(100))}).String())
}

// Add has a value looked for, in whatever way it may be written, and returns it.
func (m *Marks) Add(value string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.forms == nil {
		m.forms = map[string]string{}
	}
	for _, form := range formsOf(value) {
		m.forms[strings.ToLower(form)] = value
	}
	return value
}

// Find returns the values that are in the text, and as what.
func (m *Marks) Find(text string) (found []string) {
	text = strings.ToLower(text)
	m.mu.Lock()
	defer m.mu.Unlock()
	for form, value := range m.forms {
		if at := strings.Index(text, form); at >= 0 {
			around := text[max(0, at-80):min(len(text), at+len(form)+40)]
			found = append(found, fmt.Sprintf("%s, as %s, in …%s…", value, form, around))
		}
	}
	slices.Sort(found)
	return found
}

// Absent fails the test if one of the values is in the text, which is called so.
func (m *Marks) Absent(tb testing.TB, called, text string) {
	tb.Helper()
	m.mu.Lock()
	none := len(m.forms) == 0
	m.mu.Unlock()
	if none {
		tb.Errorf("nothing is looked for in %s", called)
	}
	for _, found := range m.Find(text) {
		tb.Errorf("%s holds %s", called, found)
	}
}

// formsOf returns how a value may be written: as it is, escaped, encoded, and as what
// everybody finds it by again who tries all that it may be: a hash without a secret.
func formsOf(value string) []string {
	quoted := strconv.Quote(value)
	inJSON, _ := json.Marshal(value)
	plain := sha256.Sum256([]byte(value))
	forms := []string{
		value, quoted[1 : len(quoted)-1], string(inJSON[1 : len(inJSON)-1]),
		url.QueryEscape(value), url.PathEscape(value),
		strings.ReplaceAll(value, "@", `\u0040`),
		hex.EncodeToString([]byte(value)),
		hex.EncodeToString(plain[:8]), base64.RawURLEncoding.EncodeToString(plain[:9]), base64.RawStdEncoding.EncodeToString(plain[:9]),
	}
	for before := range 3 {
		forms = append(forms, inBase64(value, before))
	}
	if address, err := netip.ParseAddr(value); err == nil {
		forms = append(forms, address.StringExpanded(), hex.EncodeToString(address.AsSlice())) // as in a trace of the stack
	}
	return forms
}

// inBase64 returns what of the value is in base64 whatever stands behind it, with so many
// bytes before it.
func inBase64(value string, before int) string {
	text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat(" ", before) + value))
	whole := (before + len(value)) * 8 / 6
	return text[(before*8+5)/6 : whole]
}

func letters(n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte('a' + byte(rand.N(26)))
	}
	return b.String()
}

// letter is a byte whose digits in hexadecimal are two.
func letter() byte { return byte(0x10 + rand.N(0xe0)) }
