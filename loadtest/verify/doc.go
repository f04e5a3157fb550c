// Package verify holds servers of counterd to what they promise. Many clients call several
// of them at once and write down what they were told, in an exact log; what the servers
// said is then held against the log, and against their own rules.
//
// The exchanges are plain HTTP, so that headers and bodies are seen as they came. The
// judgement of the log is pure: it makes no call and reads no clock.
package verify
