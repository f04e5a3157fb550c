package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/examples/internal/play"
)

// prompt is 400 tokens long, by the estimate.
var prompt = strings.Repeat("Tell me more.\n\n\n", 100)

// chat is the toy model behind its limits.
type chat struct {
	*play.Stage
	limiter *counterd.Limiter
	url     string
}

// begin calls the model and prints the status. The body of the response is still open.
func (c *chat) begin(user, query string) *http.Response {
	request, err := http.NewRequestWithContext(c.Context(), http.MethodPost, c.url+"/chat?"+query, strings.NewReader(prompt))
	c.Check(err)
	request.Header.Set("Authorization", "Bearer "+user)
	response, err := http.DefaultClient.Do(request)
	c.Check(err)
	fmt.Printf("%s, %s: %s\n", user, query, play.Answer(response))
	return response
}

// end reads an answer to its end.
func (c *chat) end(response *http.Response) {
	_, err := io.Copy(io.Discard, response.Body)
	c.Check(err)
	c.Check(response.Body.Close())
}

// used waits until a user has used so many tokens and has so many calls, and prints it: handlers settle after the
// answer.
func (c *chat) used(user string, tokens, calls int64) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		state, err := c.limiter.Check(c.Context(), "chat", counterd.Features{"user": user})
		c.Check(err)
		if state.Limits[0].Count == tokens && state.Limits[1].Count == calls {
			break
		}
		if time.Now().After(end) {
			c.Check(fmt.Errorf("%s has %d tokens and %d calls", user, state.Limits[0].Count, state.Limits[1].Count))
		}
	}
	fmt.Printf("  %s: %d tokens, %d calls under way\n", user, tokens, calls)
}

func run(s *play.Stage) {
	wait := make(chan struct{})
	limiter := s.Limiter(rules)
	c := &chat{s, limiter, s.Serve(newChat(limiter, toy(wait)))}

	fmt.Println("# 2,400 tokens are reserved, 900 were used: 1,500 are given back")
	c.end(c.begin("ada", "tokens=900"))
	c.used("ada", 900, 0)
	fmt.Println("# a call that fails costs nothing")
	c.end(c.begin("ada", "tokens=none"))
	c.used("ada", 900, 0)

	fmt.Println("# a client leaves: what was used until then counts")
	c.Check(c.begin("ada", "wait=1&tokens=800").Body.Close())
	c.used("ada", 900+400, 0)

	fmt.Println("# two calls are under way, with their estimates: a third one is denied")
	first, second := c.begin("ada", "wait=1&tokens=700"), c.begin("ada", "wait=1&tokens=800")
	c.used("ada", 1300+2*2400, 2)
	c.end(c.begin("ada", "tokens=100"))
	close(wait)
	c.end(first)
	c.end(second)
	c.used("ada", 1300+700+800, 0)
	c.end(c.begin("ada", "tokens=100"))
	c.used("ada", 2900, 0)

	fmt.Println("# a long answer uses more than was reserved: it counts in full")
	c.end(c.begin("ada", "tokens=6000"))
	c.used("ada", 8900, 0)
	c.end(c.begin("ada", "tokens=100"))
	c.end(c.begin("bob", "tokens=100"))
}
