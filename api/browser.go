package api

import (
	"bytes"
	"html/template"
	"net/http"
	"strings"

	"github.com/counterd/counterd/api/wire"
)

// accessDocumentation explains tokens, and the page.
const accessDocumentation = "https://github.com/counterd/counterd/blob/main/docs/access.md"

// browserTemplates are the pages of routes that answer browsers in HTML and programs in JSON.
var browserTemplates = template.Must(template.New("").Parse(`
{{- define "top"}}<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{{.Title}}{{if ne .Title "counterd"}} – counterd{{end}}</title>
</head>
<body>
<main>
<h1>{{.Title}}</h1>
{{end}}
{{- define "index"}}{{template "top" .}}
{{- if .Page}}<p><a href="ui/">The page</a> shows who is denied, by which limit, and why.</p>
{{else}}<p>The page <code>/ui/</code> is on the address of <code>-admin</code>, not on this one:
<a href="{{.Access}}#the-page">how to reach it</a>.</p>
{{end}}<p>For programs: <a href="openapi.json">OpenAPI 3.1</a>,
<a href="{{.Index.Documentation}}">documentation</a>.</p>
<ul>{{range .Index.Routes}}
<li><code>{{range $i, $method := .Methods}}{{if $i}}, {{end}}{{$method}}{{end}} {{.Path}}</code></li>{{end}}
</ul>
</main>
</body>
</html>
{{end}}
{{- define "refusal"}}{{template "top" .}}
{{- if eq .Problem.Status 401}}<p>This page needs a token.
Reload it, and log in with any user name, and a token as the password.</p>
<p>The token is one of the file that <code>-tokens</code> names, of the class <code>see</code>: its last word, as in
<code>oncall see TOKEN</code>. <a href="{{.Access}}#the-page">How to make one</a>.</p>
{{else}}<p>{{.Problem.Detail}}</p>
{{with .Class}}<p>It needs the class <code>{{.}}</code>. To log in with another token, close the browser first.</p>
{{end}}{{end}}</main>
</body>
</html>
{{end}}`))

// browserView is what browserTemplates show.
type browserView struct {
	Title, Access string
	Page          bool // /ui/ is on this address
	Index         wire.Index
	Problem       wire.Problem
	Class         string // that a token lacks
}

// takesHTML reports whether a request is a browser's that shows a page to a person.
func takesHTML(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// replyHTML answers with one of browserTemplates.
func (h *handler) replyHTML(w http.ResponseWriter, status int, name string, view browserView) {
	view.Access = accessDocumentation
	var text bytes.Buffer
	if err := browserTemplates.ExecuteTemplate(&text, name, view); err != nil {
		h.Responder.Log.Error("an answer cannot be encoded", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	set := w.Header().Set
	set("Content-Type", "text/html; charset=utf-8")
	set("Cache-Control", "no-store")
	set("X-Content-Type-Options", "nosniff")
	set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; frame-ancestors 'none'")
	set("Referrer-Policy", "no-referrer")
	w.WriteHeader(status)
	_, _ = text.WriteTo(w) // only a client that has left misses it
}
