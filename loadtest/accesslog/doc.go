// Package accesslog reads logs: those of web servers in the common and the combined log
// format, JSON lines, and any lines that a regular expression takes apart; plain or
// compressed with gzip.
//
// A [Format] makes a [Record] of a line: its time, and some of its fields, by name.
// [NewCommon], [NewJSON], [NewRegexp] and [NewAuto] make formats. [Read] yields a record
// for each line and goes on behind lines that are malformed.
//
// Most callers want [ReadLog], which takes the features and the time of each line, as a
// [Mapping] of fields to kinds of features says.
package accesslog
