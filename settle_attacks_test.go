package counterd_test

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/counterd/counterd"
	"github.com/counterd/counterd/api/wire"
	"github.com/counterd/counterd/internal/testkit"
	"github.com/counterd/counterd/internal/testkit/bubble"
	"github.com/counterd/counterd/internal/testkit/memcachedtest"
)

// sends makes requests to a limiter's whole HTTP interface.
type sends struct {
	t *testing.T
	h http.Handler
}

func (s sends) post(path, body string) *httptest.ResponseRecorder {
	return s.send(http.MethodPost, path, body)
}

func (s sends) send(method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", wire.TypeJSON)
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, r)
	return w
}

// reserved returns the reservation of a hit.
func (s sends) reserved(event, more string) string {
	s.t.Helper()
	w := s.post("/v1/events/"+event+"/hit", `{"features": {"user": "bob"}`+more+`}`)
	require.Equal(s.t, http.StatusOK, w.Code, "%s", w.Body)
	var d wire.Decision
	require.NoError(s.t, json.Unmarshal(w.Body.Bytes(), &d))
	require.NotEmpty(s.t, d.Reservation)
	return d.Reservation
}

func (s sends) settle(reservation, more string) (status int) {
	return s.post("/v1/settle", `{"reservation": "`+reservation+`"`+more+`}`).Code
}

// Whatever is sent to settle, or to reserve, is answered as the contract says, and nothing by a fault of the
// server's own.
func TestOddReservations(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := sends{t, handlerOf(start(t, parse(t, reservingRules)))}
		lease := s.reserved("export", "")
		reservation := s.reserved("chat", `, "cost": 10, "reserve": "30s"`)
		for i := range len(reservation) {
			altered := []byte(reservation)
			altered[i] ^= 1
			require.Equal(t, http.StatusBadRequest, s.settle(strings.ToValidUTF8(string(altered), "x"), `, "cost": 1`), "altered at %d", i)
		}
		for body, want := range map[string]int{
			``:                                      400,
			`{`:                                     400,
			`null`:                                  400,
			`[]`:                                    400,
			`{}`:                                    400,
			`{"cost": 1}`:                           400,
			`{"reservation": "", "cost": 1}`:        400,
			`{"reservation": null, "cost": 1}`:      400,
			`{"reservation": 7, "cost": 1}`:         400,
			`{"reservation": "R"}`:                  400,
			`{"reservation": "R", "cost": null}`:    400,
			`{"reservation": "R", "cost": -1}`:      400,
			`{"reservation": "R", "cost": 1000001}`: 400,
			`{"reservation": "R", "cost": 9223372036854775808}`:                 400,
			`{"reservation": "R", "cost": 0.5}`:                                 400,
			`{"reservation": "R", "cost": "1"}`:                                 400,
			`{"reservation": "R", "cost": 1, "cost": 1}`:                        400,
			`{"reservation": "R", "cost": 1, "renew": "30s"}`:                   400,
			`{"reservation": "R", "cost": 1, "event": "chat"}`:                  400,
			`{"reservation": "L", "renew": ""}`:                                 400,
			`{"reservation": "L", "renew": "0s"}`:                               400,
			`{"reservation": "L", "renew": "-5s"}`:                              400,
			`{"reservation": "L", "renew": "1ms"}`:                              400,
			`{"reservation": "L", "renew": "61s"}`:                              400,
			`{"reservation": "L", "renew": "106751d"}`:                          400,
			`{"reservation": "L", "renew": 30}`:                                 400,
			`{"reservation": "RR", "cost": 1}`:                                  400,
			`{"reservation": " R", "cost": 1}`:                                  400,
			`{"reservation": "R=", "cost": 1}`:                                  400,
			`{"reservation": "` + strings.Repeat("A", 17<<10) + `", "cost": 1}`: 400,
			`{"reservation": "` + strings.Repeat("A", 2<<20) + `", "cost": 1}`:  413,
		} {
			body = strings.NewReplacer(`"R"`, `"`+reservation+`"`, `"L"`, `"`+lease+`"`, `"RR"`, `"`+reservation+reservation+`"`, `" R"`, `" `+reservation+`"`, `"R="`, `"`+reservation+`="`).Replace(body)
			w := s.post("/v1/settle", body)
			require.Equal(t, want, w.Code, "%.200s: %s", body, w.Body)
			require.Equal(t, wire.TypeProblem, w.Header().Get("Content-Type"))
		}
		for _, more := range []string{
			`"reserve": ""`, `"reserve": "0s"`, `"reserve": "-30s"`, `"reserve": "1ms"`, `"reserve": "1.5s"`, `"reserve": "86401s"`, `"reserve": "106751d"`, `"reserve": 30`,
			`"reserve": "soon"`, `"reserve": "30s", "cost": 0`, `"reserve": "30s", "cost": -1`, `"reserve": "30s", "cost": 1000001`,
		} {
			w := s.post("/v1/events/chat/hit", `{"features": {"user": "eve"}, `+more+`}`)
			require.Equal(t, http.StatusBadRequest, w.Code, more)
			w = s.post("/v1/batch", `{"hits": [{"event": "chat", "features": {"user": "eve"}, `+more+`}]}`)
			require.True(t, w.Code == http.StatusBadRequest || w.Code == http.StatusOK && strings.HasPrefix(w.Body.String(), `{"results":[{"status":400`), "%s: %s", more, w.Body)
		}
		w := s.post("/v1/events/unknown/hit", `{"features": {"user": "eve"}, "reserve": "soon"}`)
		require.Equal(t, http.StatusNotFound, w.Code)
		counts := func(want ...int64) {
			t.Helper()
			var d wire.Decision
			w := s.send(http.MethodGet, "/v1/events/chat/check?feature=user:bob", "")
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &d), "%s", w.Body)
			for i, n := range want {
				require.Equal(t, n, d.Limits[i].Count, "%+v", d.Limits[i])
			}
		}
		counts(10, 10, 1)
		require.Equal(t, http.StatusOK, s.settle(lease, `, "renew": "60s"`), "as long as the lease")
		require.Equal(t, http.StatusOK, s.settle(lease, `, "renew": "60s"`), "repeated")
		require.Equal(t, http.StatusOK, s.settle(reservation, `, "cost": 1000000`))
		counts(1_000_000, 1_000_000, 0)
		for cost, want := range map[int]int{1_000_000: http.StatusOK, 0: http.StatusConflict, 10: http.StatusConflict, 999_999: http.StatusConflict} {
			require.Equal(t, want, s.settle(reservation, fmt.Sprint(`, "cost": `, cost)))
		}
		require.Equal(t, http.StatusGone, s.settle(reservation, `, "renew": "30s"`), "the lease was released")
		counts(1_000_000, 1_000_000, 0)

		forget := func() {
			require.Equal(t, http.StatusNoContent, s.send(http.MethodDelete, "/v1/events/chat/counters?feature=user:bob", "").Code)
		}
		forget()
		counts(0, 0, 0)
		early, late := s.reserved("chat", `, "cost": 10, "reserve": "30s"`), s.reserved("chat", `, "cost": 10, "reserve": "1s"`)
		forget()
		require.Equal(t, http.StatusOK, s.post("/v1/events/chat/hit", `{"features": {"user": "bob"}, "cost": 4}`).Code)
		require.Equal(t, http.StatusOK, s.settle(early, `, "cost": 0`))
		require.Equal(t, http.StatusConflict, s.settle(early, `, "cost": 3`))
		counts(4, 4, 1)
		time.Sleep(time.Second)
		require.Equal(t, http.StatusGone, s.settle(late, `, "cost": 0`))
		counts(4, 4, 1)
	})
}

// forge returns a reservation as a limiter without a secret takes it: it has a checksum only.
func forge(content []byte) string {
	b := append([]byte{'p', 1}, content...)
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)))
}

// Nor is a forged one, where there is no secret. It may count anything, but breaks
// nothing.
func TestForgedReservations(t *testing.T) {
	l := start(t, parse(t, reservingRules), counterd.WithMemcached(memcachedtest.Start(t).Addr), counterd.WithTimeout(5*time.Second), counterd.WithGrace(10*time.Second))
	s := sends{t, handlerOf(l)}
	genuine, err := base64.RawURLEncoding.DecodeString(s.reserved("chat", `, "cost": 10, "reserve": "30s"`))
	require.NoError(t, err)
	genuine = genuine[2 : len(genuine)-4]
	rnd := rand.New(rand.NewPCG(1, 7))
	statuses := map[int]int{}
	for range testkit.Times(1000) {
		content := append([]byte(nil), genuine...)
		if rnd.IntN(2) == 0 {
			for range 1 + rnd.IntN(3) {
				content[rnd.IntN(len(content))] = testkit.Pick(rnd, 0, 1, 2, 0x7f, 0x80, 0xff, byte(rnd.Uint32()))
			}
		} else {
			content = []byte{byte(rnd.IntN(4))}
			for range content[0] {
				content = append(content, byte(rnd.IntN(4)), byte(rnd.IntN(3)))
				counter := testkit.Pick(rnd, "", "x", "a b\r\nset x 0 0 1\r\ny\r\n", strings.Repeat("c", 300))
				content = append(binary.AppendUvarint(content, uint64(len(counter))), counter...)
				content = binary.BigEndian.AppendUint64(content, testkit.Pick(rnd, 0, 1, 1<<55, rnd.Uint64(), math.MaxUint64))
				now := uint64(time.Now().UnixMilli())
				for _, most := range []uint64{32 * 24 * 3600, 1 << 46, 1 << 46, 1_000_000, 32 * 24 * 3600 * 1000} {
					content = binary.AppendUvarint(content, testkit.Pick(rnd, 0, 1, most, rnd.Uint64N(most), min(now, most), min(now+30_000, most)))
				}
			}
		}
		forged, more := forge(content), testkit.Pick(rnd, `, "cost": 0`, `, "cost": 7`, `, "cost": 1000000`, `, "renew": "30s"`, `, "renew": "1s"`)
		w := s.post("/v1/settle", `{"reservation": "`+forged+`"`+more+`}`)
		statuses[w.Code]++
		require.Contains(t, []int{200, 400, 409, 410, 503}, w.Code, "%x%s: %s", content, more, w.Body)
	}
	t.Log(statuses)
	assert.NotZero(t, min(statuses[200], statuses[400], statuses[410]))
	_, err = l.Hit(ctx, "export", bob)
	require.NoError(t, err)
}

// A reservation that was forged with a time far ahead, or an end far behind, does not carry a log there.
func TestForgedTimes(t *testing.T) {
	for _, limit := range []string{"{per: user, rate: 100/h, algorithm: sliding-log}", "{per: user, rate: 1/m, burst: 100}", "{per: user, concurrent: 100, lease: 30s}"} {
		l := start(t, parse(t, "events: {chat: {limits: ["+limit+"]}}"), counterd.WithMemcached(memcachedtest.Start(t).Addr), counterd.WithTimeout(5*time.Second), counterd.WithGrace(10*time.Second))
		s := sends{t, handlerOf(l)}
		genuine, err := base64.RawURLEncoding.DecodeString(s.reserved("chat", `, "cost": 10, "reserve": "30s"`))
		require.NoError(t, err)
		genuine = genuine[2 : len(genuine)-4]
		at := 1 + 2 // behind the number, the engine and the precision
		name, size := binary.Uvarint(genuine[at:])
		at += size + int(name) + 8
		_, size = binary.Uvarint(genuine[at:]) // the retention
		at += size
		head := genuine[:at:at]
		taken, size := binary.Uvarint(genuine[at:])
		ends, more := binary.Uvarint(genuine[at+size:])
		rest := genuine[at+size+more:]
		for _, times := range [][2]uint64{{1 << 45, 1<<45 + 1000}, {1 << 46, 1 << 46}, {taken + 3600_000, ends + 3600_000}, {taken, 1 << 46}, {0, ends}, {ends, taken - 60_000}} {
			forged := append(binary.AppendUvarint(binary.AppendUvarint(head, times[0]), times[1]), rest...)
			for _, more := range []string{`, "cost": 7`, `, "renew": "30s"`} {
				status := s.settle(forge(forged), more)
				if times[0] == taken+3600_000 && status == http.StatusServiceUnavailable {
					continue // a clock that is ahead may have stamped it
				}
				require.Equal(t, http.StatusBadRequest, status, "%s: %v", limit, times)
			}
		}
		d, err := l.HitN(ctx, "chat", bob, 90)
		require.NoError(t, err)
		assert.True(t, d.Allowed)
		assert.False(t, d.Limits[0].Failed)
		wide := append(slices.Clone(genuine[:at-size]), genuine[at-size:]...)
		wide[1+2+1+int(name)] = 1 // the identity has 57 bits
		require.Equal(t, http.StatusBadRequest, s.settle(forge(wide), `, "cost": 7`))
		require.Equal(t, http.StatusOK, s.settle(forge(genuine), `, "cost": 7`))
	}
}
