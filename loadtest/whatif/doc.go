// Package whatif says what rules would have done to the traffic of an access log. It has
// the engine itself decide each line, a limiter.Limiter on an embedded store, at the
// log's own times, so that what it says is what a counterd with these rules would have
// answered; no server takes part, and no time passes.
//
//	log, err := accesslog.ReadLog(ctx, format, mapping, accesslog.File("access.log"))
//	report, err := whatif.Run(ctx, whatif.Config{Event: rules.Events["url_shorten"], Log: log})
//
// [Suggest] finds the limits to try: the largest count of each feature in any second, minute,
// hour and day, how these are distributed, and the smallest limits that would have denied at
// most a share of the features. It writes them as a rules file, and has Run try it.
//
// The counters are held in memory, with a bound: a run that does not fit into it is an
// error, never a wrong figure. The report takes some 100 bytes for each, and
// 8 more for each limit.
package whatif
