// Package accesslog reads the access logs of web servers in the common and the
// combined log format, plain or compressed with gzip.
//
// The formats are those of Apache's mod_log_config, and nginx's combined:
//
//	host ident user [time] "request" status bytes
//	host ident user [time] "request" status bytes "referer" "user agent"
//
// Most callers want [Read], which yields one [Entry] for each line and goes on
// behind lines that are malformed.
package accesslog
