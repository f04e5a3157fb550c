// Package suggest chooses limits from the traffic of an access log. For each kind of
// features it finds the largest count of each feature in any second, minute, hour and day,
// how these are distributed, and the smallest limits that would have denied at most a given
// share of the features. It writes them as a rules file, and has package whatif say what
// these rules would really have done.
//
//	log, err := accesslog.ReadLog(ctx, format, mapping, accesslog.File("access.log"))
//	report, err := suggest.Run(ctx, suggest.Config{Log: log, Kinds: []string{"ip"}, Deny: 1000})
//
// Every figure is exact. Beside the log, some 16 bytes a line and 32 a feature are held in
// memory, and what package whatif needs.
package suggest
