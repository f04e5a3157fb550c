package service

import (
	"slices"
	"strings"
)

// Class says what a request does, so that a token may be good for some requests and not for
// others. The zero Class is none: no token is good for it.
type Class uint8

// The classes.
const (
	ClassPublic    Class = iota + 1 // needs no token
	ClassDecide                     // hit, batch, authorize, check
	ClassRead                       // count, history
	ClassIncrement                  // increment
	ClassReset                      // reset
	ClassRules                      // the rules in force
	ClassOperate                    // metrics and profiles
)

// classNames are the classes as a file of tokens names them, which has those from
// ClassDecide on.
var classNames = [...]string{
	ClassPublic: "anyone", ClassDecide: "decide", ClassRead: "read", ClassIncrement: "increment",
	ClassReset: "reset", ClassRules: "rules", ClassOperate: "operate",
}

// String returns the name of the class in a file of tokens.
func (c Class) String() string { return classNames[c] }

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
