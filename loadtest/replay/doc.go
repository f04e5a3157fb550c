// Package replay proves a counterd server on a real access log. It shifts the
// log in time so that it ends now, increments through HTTP, then counts every
// address over several windows, now and as of past moments, and holds each count
// against an exact log of its own.
//
// [ReadLog] reads the log, [Run] replays it:
//
//	log, err := replay.ReadLog(ctx, file, replay.Naming{})
//	result, err := replay.Run(ctx, replay.Config{Client: c, Event: "url_shorten"}, log)
//
// All events are held in memory, about 100 bytes each at the peak, and each
// address once: a log of a million lines takes some 100 MB.
package replay
