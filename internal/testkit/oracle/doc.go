// Package oracle keeps, beside a server, the answers for a counter: what was
// acknowledged, what may have been counted, and which hits were admitted. It says what
// the server must know afterwards, and whether a window ever held more than its limit.
//
// The memory of a Counter is bounded by the longest window that it looks at, not by the hits. A Log
// keeps every event.
package oracle
