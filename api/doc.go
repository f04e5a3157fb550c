// Package api is counterd's HTTP interface: it decodes requests, has
// package service count and decide, and encodes answers and problems. The
// contract is docs/http.md; its bodies are in package api/wire, a Go client is in
// api/client.
//
// [NewHandler] is all of it as an http.Handler, to mount in a server of one's
// own, for every client or, by a service.Gate, for clients with a token; [NewAdminHandler] is
// the part for operators alone. [NewServer] puts either behind the timeouts and bounds of a
// public listener. [NewMiddleware] puts limits in front of any handler of a Go program,
// without a counterd beside it.
package api
