package rlsimport

import (
	"strconv"
	"strings"
)

// names are those taken, each with how many were derived from it.
type names map[string]int

// take returns a name of at most that many bytes that was not taken: the base, or one derived from it.
func (n names) take(base string, most int) string {
	base = base[:min(len(base), most)]
	name := base
	for n[name] > 0 {
		n[base]++
		suffix := "-" + strconv.Itoa(n[base])
		name = base[:min(len(base), most-len(suffix))] + suffix
	}
	n[name] = 1
	return name
}

// rename returns a valid name of at most that many bytes for each word: the word itself, or one with a _ for each byte
// that is not valid.
func rename(words []string, valid func(string) bool, most int) map[string]string {
	renamed, taken := make(map[string]string), names{}
	for _, word := range words {
		if valid(word) {
			renamed[word], taken[word] = word, 1
		}
	}
	for _, word := range words {
		if renamed[word] != "" {
			continue
		}
		base := []byte(strings.ToLower(word))
		for i, c := range base {
			if !valid("a" + string(rune(c))) {
				base[i] = '_'
			}
		}
		if !valid(string(base[:1])) {
			base = append([]byte("x"), base...)
		}
		renamed[word] = taken.take(string(base), most)
	}
	return renamed
}

// word returns a name as YAML reads it as text.
func word(name string) string {
	if name == "null" {
		return strconv.Quote(name)
	}
	return name
}

// inLine returns a text without what would end a line.
func inLine(text string) string {
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

// unprintable reports whether the name of a limit has no such character.
func unprintable(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }
