package discovery

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

// nameServer answers for one name.
type nameServer struct {
	packets net.PacketConn
	running sync.WaitGroup

	mu        sync.Mutex
	addresses []string
	fails     dnsmessage.Type // this kind of question fails
	asked     int
}

const fleetName = "cache.internal."

func startNameServer(t *testing.T) *nameServer {
	t.Helper()
	s := &nameServer{}
	var err error
	s.packets, err = net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	s.running.Go(s.servePackets)
	t.Cleanup(func() {
		s.packets.Close()
		s.running.Wait()
	})
	return s
}

func (s *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, s.packets.LocalAddr().String())
	}}
}

func (s *nameServer) set(fails dnsmessage.Type, addresses ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails, s.addresses = fails, addresses
}

func (s *nameServer) servePackets() {
	packet := make([]byte, 4096)
	for {
		n, from, err := s.packets.ReadFrom(packet)
		if err != nil {
			return
		}
		if answer := s.answer(packet[:n]); answer != nil {
			s.packets.WriteTo(answer, from)
		}
	}
}

// answer answers a question.
func (s *nameServer) answer(packet []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	var question dnsmessage.Message
	if err := question.Unpack(packet); err != nil || len(question.Questions) != 1 {
		return nil
	}
	asked := question.Questions[0]
	answer := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: question.ID, Response: true, Authoritative: true, RecursionAvailable: true},
		Questions: question.Questions,
	}
	switch {
	case asked.Type == s.fails:
		answer.RCode = dnsmessage.RCodeServerFailure
	case asked.Name.String() != fleetName || len(s.addresses) == 0:
		answer.RCode = dnsmessage.RCodeNameError
	}
	head := dnsmessage.ResourceHeader{Name: asked.Name, Class: dnsmessage.ClassINET, TTL: 1}
	for _, text := range s.addresses {
		address := netip.MustParseAddr(text)
		switch {
		case answer.RCode != dnsmessage.RCodeSuccess:
		case address.Is4() && asked.Type == dnsmessage.TypeA:
			answer.Answers = append(answer.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: address.As4()}})
		case address.Is6() && asked.Type == dnsmessage.TypeAAAA:
			answer.Answers = append(answer.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: address.As16()}})
		}
	}
	packed, err := answer.Pack()
	if err != nil {
		return nil
	}
	return packed
}

func TestAllAddressesOfAName(t *testing.T) {
	s := startNameServer(t)
	source := DNS{Name: fleetName, Port: 11211, Resolver: s.resolver()}
	for _, is := range []struct {
		addresses, servers []string
	}{
		{[]string{"10.0.0.9"}, []string{"10.0.0.9:11211"}},
		{[]string{"10.0.0.9", "10.0.0.10", "10.0.0.9"}, []string{"10.0.0.10:11211", "10.0.0.9:11211"}},
		{[]string{"10.0.0.10", "10.0.0.9"}, []string{"10.0.0.10:11211", "10.0.0.9:11211"}},
		{[]string{"2001:db8:0:0::2", "2001:db8::1"}, []string{"[2001:db8::1]:11211", "[2001:db8::2]:11211"}},
		// The addresses of a name with both kinds are mostly those of the same servers.
		{[]string{"2001:db8::1", "10.0.0.9"}, []string{"10.0.0.9:11211"}},
	} {
		s.set(0, is.addresses...)
		servers, err := List(t.Context(), source)
		require.NoError(t, err)
		assert.Equal(t, is.servers, servers)
		for _, name := range servers {
			assert.NoError(t, CheckServer(name))
		}
	}
}

// Whatever else a name server says, it never is a list of fewer servers.
func TestALookupThatFails(t *testing.T) {
	s := startNameServer(t)
	source := DNS{Name: fleetName, Port: 11211, Resolver: s.resolver()}
	// One kind of address is there, and the other, which goes first, is not told.
	s.set(dnsmessage.TypeA, "2001:db8::1", "10.0.0.1")
	servers, err := List(t.Context(), source)
	require.Error(t, err, "%v", servers)
	assert.NotErrorIs(t, err, ErrNone)
	assert.ErrorContains(t, err, fleetName)
	s.set(dnsmessage.TypeAAAA, "2001:db8::1")
	_, err = List(t.Context(), source)
	require.Error(t, err)
	assert.NotErrorIs(t, err, ErrNone)

	s.set(0)
	_, err = List(t.Context(), source)
	require.ErrorIs(t, err, ErrNone)
	assert.ErrorContains(t, err, "cache.internal. has no address")

	s.packets.Close()
	_, err = List(t.Context(), source)
	require.Error(t, err)
	assert.NotErrorIs(t, err, ErrNone)
}

func TestHowANameIsWritten(t *testing.T) {
	source, err := ParseDNS("cache.internal:11211")
	require.NoError(t, err)
	assert.Equal(t, DNS{Name: "cache.internal", Port: 11211}, source)
	for _, bad := range []string{"", "cache", ":1", "cache:", "cache:0", "cache:01", "cache:http", "cache:65536", "10.0.0.1:1", "[::1]:1", "a b:1", "a:1,b:1", "dns:a:1"} {
		_, err := ParseDNS(bad)
		assert.Error(t, err, bad)
	}
}
