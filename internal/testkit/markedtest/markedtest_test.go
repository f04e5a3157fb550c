package markedtest_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/counterd/counterd/internal/testkit/markedtest"
)

func TestMarksAreFound(t *testing.T) {
	var m markedtest.Marks
	for _, value := range []string{m.Word(), m.Email(), m.Address(), m.Address6(), m.Loopback(), m.Add("käse & brot")} {
		sum := sha256.Sum256([]byte(value))
		for _, text := range []string{
			value, strings.ToUpper(value), fmt.Sprintf("%q", value), url.QueryEscape(value), url.PathEscape(value),
			hex.EncodeToString([]byte(value)), hex.EncodeToString(sum[:]), base64.StdEncoding.EncodeToString(sum[:]),
			base64.StdEncoding.EncodeToString([]byte("a" + value + "a")),
			base64.StdEncoding.EncodeToString([]byte("ab" + value)),
			base64.URLEncoding.EncodeToString([]byte(value + "ab")),
		} {
			if value == "127.0.0.1" {
				continue
			}
			assert.NotEmpty(t, m.Find("level=WARN error=\"a "+text+"\""), "%s as %s", value, text)
		}
	}
	address := m.Address()
	word := netip.MustParseAddr(address).As4()
	assert.NotEmpty(t, m.Find(fmt.Sprintf("main.f({0xffff%x, 0x0})", word)))
	assert.Empty(t, m.Find("level=WARN error=\"a server at 198.18.0.1 is down\" 2001:db8::1 127.0.0.1"))
}

func TestMarksDiffer(t *testing.T) {
	var m markedtest.Marks
	assert.NotEqual(t, m.Word(), m.Word())
	assert.NotEqual(t, m.Email(), m.Email())
	assert.Empty(t, new(markedtest.Marks).Find("anything"))
}
