// Package replay proves a counterd server on a real log. It shifts the log in time
// so that it ends now, increments through HTTP, then counts every feature, and every
// combination that a rule names, over several windows, now and as of past moments,
// and holds each count against an exact log of its own.
//
// [Run] replays what accesslog.ReadLog has read:
//
//	format, err := accesslog.NewCombined("host")
//	log, err := accesslog.ReadLog(ctx, format, accesslog.DefaultMapping(), accesslog.File("access.log"))
//	result, err := replay.Run(ctx, replay.Config{Client: c, Event: "url_shorten"}, log)
//
// All events are held in memory, about 100 bytes each at the peak, and each
// feature once: a log of a million lines takes some 100 MB.
package replay
