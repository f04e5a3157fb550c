// Command login protects a login against guessing, without letting an attacker lock a user out.
package main

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/examples/internal/play"
)

//go:embed rules.yaml
var rules string

// maxCheck is for how long a password may be checked. A login without an outcome by then counts as failed.
const maxCheck = 30 * time.Second

// site is a web site with a login.
type site struct {
	limiter   *counterd.Limiter
	secret    []byte            // signs the cookies of known browsers: the same in all processes
	passwords map[string]string // of the users; keep a hash instead, such as argon2id
}

// newSite returns the site's handler. A login is counted before its password is checked, so that many at once get no
// more guesses than one after the other.
func newSite(s *site) http.Handler {
	user := counterd.FeatureFrom("user", func(r *http.Request) (string, error) { return userOf(r), nil })
	device := counterd.FeatureFrom("device", func(r *http.Request) (string, error) { return s.deviceOf(r), nil })
	login := http.HandlerFunc(s.login)
	unknown := s.limiter.Middleware("login", user, counterd.ReserveFor(maxCheck))(login)
	// A known browser that has used up its guesses is as good as an unknown one.
	known := s.limiter.Middleware("login_known", user, device, counterd.ReserveFor(maxCheck),
		counterd.OnDenied(func(w http.ResponseWriter, r *http.Request, _ counterd.Decision) {
			unknown.ServeHTTP(w, r)
		}))(login)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
		switch {
		case userOf(r) == "":
			http.Error(w, "user and password are needed", http.StatusBadRequest)
		case s.deviceOf(r) != "":
			known.ServeHTTP(w, r)
		default:
			unknown.ServeHTTP(w, r)
		}
	})
	return mux
}

// login checks the password. If it is right the login costs nothing, and the browser is known from then on. The
// answer to an unknown user is that to a wrong password.
func (s *site) login(w http.ResponseWriter, r *http.Request) {
	decision, _ := counterd.DecisionOf(r.Context())
	for _, limit := range decision.Limits {
		if limit.Shadow && !limit.Allowed {
			w.Header().Set("Would-Deny", limit.Name) // for the example: a metric tells as much
		}
	}
	user := userOf(r)
	password, found := s.passwords[user]
	if subtle.ConstantTimeCompare([]byte(password), []byte(r.PostFormValue("password"))) != 1 || !found {
		http.Error(w, "wrong user or password", http.StatusUnauthorized)
		return
	}
	if decision.Reservation != "" {
		_ = s.limiter.Release(r.Context(), decision.Reservation) // if it fails, the login counts as a failed one
	}
	http.SetCookie(w, &http.Cookie{
		Name: deviceCookie, Value: s.sign(rand.Text(), user), Path: "/login", MaxAge: 365 * 24 * 3600,
		Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
}

// userOf returns the user as the counters and the passwords name it: one user has one spelling.
func userOf(r *http.Request) string {
	return strings.ToLower(strings.TrimSpace(r.PostFormValue("user")))
}

const deviceCookie = "device"

// sign returns what a known browser shows: its random name, and the signature of the name with its user.
func (s *site) sign(device, user string) string {
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte(device + "\n" + user))
	return device + "." + hex.EncodeToString(mac.Sum(nil))
}

// deviceOf returns the browser's name if it has logged in as this user before, else "".
func (s *site) deviceOf(r *http.Request) string {
	cookie, err := r.Cookie(deviceCookie)
	if err != nil {
		return ""
	}
	device, _, _ := strings.Cut(cookie.Value, ".")
	if !hmac.Equal([]byte(cookie.Value), []byte(s.sign(device, userOf(r)))) {
		return ""
	}
	return device
}

func main() { play.Main(run) }
