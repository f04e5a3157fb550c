// Package verify holds servers of counterd to what they promise. Many clients call several
// of them at once and keep all answers in an exact log. The judge then holds the answers to
// the log and to the rules of the servers.
//
// The exchanges are plain HTTP, so that headers and bodies are seen as they came. The
// judgement of the log is pure: it makes no call and reads no clock.
package verify
