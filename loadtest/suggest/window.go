package suggest

// windows are those for which limits are suggested, the shortest first.
func windows() []window {
	return []window{{"second", 1, "s"}, {"minute", 60, "m"}, {"hour", 60 * 60, "h"}, {"day", 24 * 60 * 60, "d"}}
}

type window struct {
	name    string
	seconds int64
	unit    string // of a rate
}
