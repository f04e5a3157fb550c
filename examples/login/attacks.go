package main

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/examples/internal/play"
)

// attempt is a login from an address, with the cookie of a browser.
type attempt struct {
	ip, user, password string
	cookie             *http.Cookie
}

// outcomes are how many logins ended in which way.
type outcomes struct {
	in, wrong, denied, wouldDeny int
	cookie                       *http.Cookie // of the last one that succeeded
}

func (o *outcomes) String() string {
	text := fmt.Sprintf("%d in, %d wrong, %d denied", o.in, o.wrong, o.denied)
	if o.wouldDeny > 0 {
		text += fmt.Sprintf(" (would deny %d)", o.wouldDeny)
	}
	return text
}

// attack makes all attempts at once and returns their outcomes.
func attack(s *play.Stage, url string, attempts ...attempt) *outcomes {
	o, mu, running := &outcomes{}, sync.Mutex{}, sync.WaitGroup{}
	answers := make([]error, len(attempts))
	for i, a := range attempts {
		running.Go(func() {
			response, err := a.send(s, url)
			if answers[i] = err; err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers[i] = o.add(response)
		})
	}
	running.Wait()
	for _, err := range answers {
		s.Check(err)
	}
	return o
}

func (o *outcomes) add(response *http.Response) error {
	switch response.StatusCode {
	case http.StatusOK:
		o.in++
		o.cookie = response.Cookies()[0]
	case http.StatusUnauthorized:
		o.wrong++
	case http.StatusTooManyRequests:
		o.denied++
	default:
		return fmt.Errorf("a login was answered %s", response.Status)
	}
	if response.Header.Get("Would-Deny") != "" {
		o.wouldDeny++
	}
	return nil
}

// send posts the form, by way of the proxy that says from which address it came.
func (a attempt) send(s *play.Stage, to string) (*http.Response, error) {
	form := url.Values{"user": {a.user}, "password": {a.password}}.Encode()
	request, err := http.NewRequestWithContext(s.Context(), http.MethodPost, to+"/login", strings.NewReader(form))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("X-Forwarded-For", a.ip)
	if a.cookie != nil {
		request.AddCookie(a.cookie)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	return response, response.Body.Close()
}

// many returns n attempts.
func many(n int, of func(i int) attempt) (list []attempt) {
	for i := range n {
		list = append(list, of(i))
	}
	return list
}

func run(s *play.Stage) {
	users := map[string]string{"ada": "lovelace", "bob": "builder", "eve": "polastri", "dan": "dare"}
	limiter := s.Limiter(strings.ReplaceAll(rules, "shadow: false", "shadow: true"))
	url := s.Serve(newSite(&site{limiter, []byte(rand.Text()), users}))
	guess := func(ip, user string) func(int) attempt {
		return func(i int) attempt { return attempt{ip: ip, user: user, password: fmt.Sprint("guess", i)} }
	}

	fmt.Println("20 guesses at eve from one address, in shadow:", attack(s, url, many(20, guess("198.51.100.1", "eve"))...))

	enforced, err := counterd.ParseRules([]byte(rules))
	s.Check(err)
	s.Check(limiter.SetRules(enforced))
	fmt.Println("20 guesses at bob from one address:", attack(s, url, many(20, guess("198.51.100.2", "bob"))...))
	fmt.Println("20 guesses at BOB from that address:", attack(s, url, many(20, guess("198.51.100.2", "BOB"))...))
	home := attack(s, url, attempt{ip: "203.0.113.7", user: "bob", password: "builder"})
	fmt.Println("bob from home:", home)

	stuffing := many(50, func(i int) attempt {
		return attempt{ip: "198.51.100.3", user: fmt.Sprint("user", i), password: "123456"}
	})
	fmt.Println("50 accounts from one address:", attack(s, url, stuffing...))

	botnet := many(200, func(i int) attempt {
		return attempt{ip: fmt.Sprint("192.0.2.", i), user: "bob", password: fmt.Sprint("guess", i)}
	})
	fmt.Println("200 guesses at bob from 200 addresses:", attack(s, url, botnet...))
	fmt.Println("bob from his browser:", attack(s, url, attempt{"203.0.113.7", "bob", "builder", home.cookie}))
	fmt.Println("bob from a new browser:", attack(s, url, attempt{ip: "203.0.113.7", user: "bob", password: "builder"}))
	fmt.Println("bob's cookie with the name of dan:", attack(s, url, attempt{"203.0.113.8", "dan", "guess", home.cookie}))

	var often outcomes
	for range 100 {
		often.in += attack(s, url, attempt{ip: "203.0.113.9", user: "ada", password: "lovelace"}).in
	}
	fmt.Println("ada 100 times:", &often)
}
