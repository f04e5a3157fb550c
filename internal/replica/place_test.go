package replica

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const placed = 20_000

func placesOf(t *topology, c Counter) []Server {
	var list [MaxReplicas]Server
	return slices.Clone(t.of(c.Hash, &list))
}

// Each counter is on as many different servers as it has copies, or on all of them; the
// first is that of a list with one copy; the order of the list does not matter.
func TestPlacesOfCounters(t *testing.T) {
	for replicas := 1; replicas <= MaxReplicas; replicas++ {
		for n := 1; n <= 8; n++ {
			_, servers := newFakes(n)
			one := newTopology(0, replicas, servers)
			shuffled := slices.Clone(servers)
			rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			two := newTopology(0, replicas, shuffled)
			alone := newTopology(0, 1, servers)
			for i := range 300 {
				c := counter(i)
				places := placesOf(one, c)
				require.Len(t, places, min(replicas, n))
				require.Equal(t, places, placesOf(two, c))
				require.Equal(t, places[0], alone.first(c.Hash))
				require.Equal(t, places[0], one.first(c.Hash))
				for k, server := range places {
					require.NotContains(t, places[:k], server)
				}
			}
		}
	}
}

// A server that is added takes the place of one copy at the most, and of those its share;
// what stays keeps its order. That one goes is the same the other way round.
func TestAServerMoreMovesOneReplicaAtTheMost(t *testing.T) {
	for _, replicas := range []int{1, 2, 3, 5} {
		_, servers := newFakes(7)
		before, after := newTopology(0, replicas, servers[:6]), newTopology(1, replicas, servers)
		moved := 0
		for i := range placed {
			was, is := placesOf(before, counter(i)), placesOf(after, counter(i))
			stayed := slices.DeleteFunc(slices.Clone(is), func(s Server) bool { return s == servers[6] })
			if len(stayed) == len(is) {
				require.Equal(t, was, is)
				continue
			}
			moved++
			require.Equal(t, was[:replicas-1], stayed)
		}
		share := float64(replicas) / 7
		assert.InDelta(t, share*placed, moved, 0.05*placed, "%d replicas", replicas)
	}
}

func TestPlacesAreEven(t *testing.T) {
	const servers = 5
	for _, replicas := range []int{1, 2, 3} {
		_, list := newFakes(servers)
		topology := newTopology(0, replicas, list)
		count := map[Server]int{}
		for i := range placed {
			for _, server := range placesOf(topology, counter(i)) {
				count[server]++
			}
		}
		for server, n := range count {
			assert.InEpsilon(t, placed*replicas/servers, n, 0.1, server.Name())
		}
	}
}

// FuzzLists finds the list of a receipt again, also after it has changed, as long as it is
// remembered.
func FuzzLists(f *testing.F) {
	f.Add(2, 0, 0)
	f.Add(5, 300, 8)
	f.Add(5, 255, 1)
	f.Add(3, 256, 9)
	f.Fuzz(func(t *testing.T, replicas, lists, since int) {
		replicas, lists, since = 1+abs(replicas)%MaxReplicas, abs(lists)%600, abs(since)%12
		s := New(Config{Hash: hashOfName, Replicas: replicas})
		defer s.Close()
		_, servers := newFakes(replicas + 1)
		s.Use(servers)
		for range lists {
			s.Use(servers)
		}
		then := s.topology.Load()
		first, version := s.First(counter(1).Hash)
		for range since {
			s.Use(servers)
		}
		if since > formerLists {
			require.Nil(t, s.at(version))
			require.Nil(t, s.FirstOf(counter(1).Hash, version))
			return
		}
		require.Same(t, then, s.at(version))
		require.Equal(t, first, s.FirstOf(counter(1).Hash, version))
	})
}

func abs(n int) int { return max(n, -(n + 1)) }
