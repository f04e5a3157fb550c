package service

// Find returns the name of the token of that text.
func (t *Tokens) Find(text string) (string, bool) {
	one, ok := t.find(text)
	return one.name, ok
}
