// Package service is what every way into counterd does besides its protocol: it holds the
// rules in force, decides and counts by them, traces decisions, admits requests by their
// tokens, and bounds their number and their memory. Package api puts it behind HTTP.
//
// Import it to serve counterd over another protocol. A [Service] takes and returns plain
// values; its errors are those of packages events and hierarchy and the ones declared here,
// so that a protocol maps them to its statuses in one table. A [Gate] admits requests. A
// [Health] says whether more of them are welcome.
package service
