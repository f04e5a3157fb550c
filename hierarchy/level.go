package hierarchy

import (
	"fmt"
	"strings"
	"time"
)

// Level is a step of the hierarchy. Levels are ordered, the finest first.
type Level uint8

// The levels. Each one's length is a multiple of the length of the one before.
const (
	Second Level = iota
	Minute
	Hour
	Day
)

// Levels is the number of levels.
const Levels = 4

var (
	levelSeconds = [Levels]int64{1, 60, 3600, 86400}
	levelNames   = [Levels]string{"second", "minute", "hour", "day"}
)

// Seconds returns the length of the level's buckets in seconds.
func (l Level) Seconds() int64 { return levelSeconds[l] }

// String returns second, minute, hour or day.
func (l Level) String() string { return levelNames[l] }

// ParseLevel reads what String writes.
func ParseLevel(s string) (Level, error) {
	for l, name := range levelNames {
		if s == name {
			return Level(l), nil
		}
	}
	return 0, fmt.Errorf("hierarchy: a level is one of %s", strings.Join(levelNames[:], ", "))
}

// RankLevel returns the coarsest level that is not longer than the window.
// Windows shorter than a second have the level Second.
func RankLevel(window time.Duration) Level {
	rank := Second
	for l := Minute; l <= Day; l++ {
		if l.Seconds() <= int64(window/time.Second) {
			rank = l
		}
	}
	return rank
}
