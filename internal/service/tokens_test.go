package service_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd/events"
	"github.com/counterd/counterd/internal/service"
)

func hash(secret string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(secret))) }

func TestParseTokens(t *testing.T) {
	tokens, err := service.ParseTokens([]byte("# who may\r\n\n" +
		"edge\tdecide  abcdefghijklmnop\r\n" +
		"edge decide,read ABCDEFGHIJKLMNOP+/-._~== # the new one\n" +
		"  ops all " + hash("only the sum is in the file")))
	require.NoError(t, err)
	assert.Equal(t, 3, tokens.Len())
	for text, want := range map[string]string{
		"abcdefghijklmnop": "edge", "ABCDEFGHIJKLMNOP+/-._~==": "edge", "only the sum is in the file": "ops",
		"": "", "abcdefghijklmno": "", "abcdefghijklmnopq": "", "edge": "", hash("only the sum is in the file"): "",
	} {
		name, ok := tokens.Find(text)
		assert.Equal(t, want, name, text)
		assert.Equal(t, want != "", ok, text)
	}
	_, ok := (*service.Tokens)(nil).Find("")
	assert.False(t, ok)
}

// The file that docs/access.md shows is one.
func TestTheDocumentedTokens(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "access.md"))
	require.NoError(t, err)
	_, text, found := strings.Cut(string(page), "```\n# name ")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "```")
	tokens, err := service.ParseTokens([]byte("#" + text))
	require.NoError(t, err)
	assert.Equal(t, 4, tokens.Len())
}

// Each of many tokens is found, the last as the first.
func TestManyTokens(t *testing.T) {
	var text strings.Builder
	secret := func(i int) string { return fmt.Sprintf("a-token-of-many-%d", i) }
	for i := range 1000 {
		fmt.Fprintf(&text, "t%d decide %s\n", i, secret(i))
	}
	tokens, err := service.ParseTokens([]byte(text.String()))
	require.NoError(t, err)
	for i := range 1000 {
		name, ok := tokens.Find(secret(i))
		require.True(t, ok)
		require.Equal(t, fmt.Sprintf("t%d", i), name)
	}
	_, err = service.ParseTokens([]byte(text.String() + "one all more-than-a-thousand\n"))
	require.ErrorContains(t, err, "line 1001: there are more than 1000 tokens")
}

// ParseTokens reports all faults, each with its line, and none repeats what may be a token.
func TestFaultsOfTokens(t *testing.T) {
	const secret = "wellspring-of-secrets"
	_, err := service.ParseTokens([]byte(strings.Join([]string{
		"edge decide",                                 // 1
		secret,                                        // 2
		"edge decide " + secret + " more",             // 3
		"edge " + secret + " decide",                  // 4: two faults
		"ed/ge decide " + secret,                      // 5
		"edge decide, " + secret,                      // 6
		"edge all,decide " + secret,                   // 7
		"edge anyone " + secret,                       // 8
		"edge decide fifteen-letters",                 // 9
		"edge decide " + secret + ":",                 // 10
		"edge decide " + secret + "=x",                // 11
		"edge decide ================",                // 12
		"edge decide sha256:" + secret,                // 13
		"edge decide " + hash(secret) + "0",           // 14
		"edge decide " + hash(secret)[:70],            // 15
		"edge decide SHA256:" + hash(secret)[7:],      // 16
		"good decide " + secret,                       // 17
		"# " + secret,                                 // 18
		"twin reset " + hash(secret),                  // 19
		"edge decide " + strings.Repeat("x", 4097),    // 20
		strings.Repeat("x", 65) + " decide " + secret, // 21
	}, "\n")))
	var lines []int
	faults, ok := err.(events.Faults)
	require.True(t, ok, "%v", err)
	for _, fault := range faults {
		lines = append(lines, fault.Line)
	}
	assert.Equal(t, []int{1, 2, 3, 4, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 19, 20, 21}, lines)
	assert.ErrorContains(t, err, "line 19: the token is that of line 17")
	assert.NotContains(t, err.Error(), "secrets")
	for _, empty := range []string{"", "\n\n", "# none yet"} {
		_, err := service.ParseTokens([]byte(empty))
		assert.ErrorContains(t, err, "there is no token", "%q", empty)
	}
}

// told are all that faults say, but for numbers.
var told = regexp.MustCompile(`^(there are N words: .*|the name, the first word, .*|the classes, the second word, .*|the token, the third word, .*|` +
	`there is no token: .*|the token is that of line N|there are more than N tokens)$`)

var number = regexp.MustCompile(`\d+`)

// Whatever the file holds, it is taken whole and every token in it is found, or faults
// say nothing of it.
func FuzzParseTokens(f *testing.F) {
	f.Add("edge decide,read abcdefghijklmnop\nedge all " + hash("x"))
	f.Add("a b c d\n\x00 \xff sha256:\n= = ================")
	f.Fuzz(func(t *testing.T, text string) {
		tokens, err := service.ParseTokens([]byte(text))
		if err != nil {
			for _, fault := range err.(events.Faults) {
				require.Regexp(t, told, number.ReplaceAllString(fault.Reason, "N"))
			}
			return
		}
		for line := range strings.Lines(text) {
			line, _, _ = strings.Cut(line, "#")
			if words := strings.Fields(line); len(words) > 0 && !strings.HasPrefix(words[2], "sha256:") {
				name, ok := tokens.Find(words[2])
				require.True(t, ok)
				require.Equal(t, words[0], name)
			}
		}
	})
}

func BenchmarkFindToken(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, "t decide a-token-of-many-%d\n", i)
		}
		tokens, err := service.ParseTokens([]byte(text.String()))
		require.NoError(b, err)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := tokens.Find("a-token-of-many-0"); !ok {
					b.Fatal("it is not found")
				}
			}
		})
	}
}
