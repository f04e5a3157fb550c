package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/counterd/counterd/loadtest/child"
)

// Programs are the paths of the programs that contenders need; empty: there is none.
type Programs struct {
	Counterd, Memcached, Redis, RateLimit, Gubernator string
}

const storeTimeout = 10 * time.Second

// startMemcached starts a Memcached server for one contender.
func startMemcached(ctx context.Context, p Programs, c *closers) (addr string, memory func() (int64, error), err error) {
	server, err := child.Start(ctx, child.Memcached(p.Memcached, "-t", "1", "-m", "1024", "-R", "1000"))
	if err != nil {
		return "", nil, err
	}
	c.add(server.Stop)
	return server.Addr, func() (int64, error) { return slabsOf(server.Addr) }, nil
}

// slabsOf returns the bytes of all chunks in use of a Memcached server.
func slabsOf(addr string) (sum int64, err error) {
	conn, err := net.DialTimeout("tcp", addr, storeTimeout)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(storeTimeout)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(conn, "stats slabs\r\nquit\r\n"); err != nil {
		return 0, err
	}
	sizes := map[string]int64{}
	lines := bufio.NewScanner(conn)
	for lines.Scan() { // STAT 1:chunk_size 96
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 {
			continue
		}
		class, figure, _ := strings.Cut(fields[1], ":")
		value, _ := strconv.ParseInt(fields[2], 10, 64)
		switch figure {
		case "chunk_size":
			sizes[class] = value
		case "used_chunks":
			sum += value * sizes[class]
		}
	}
	return sum, lines.Err()
}

// startRedis starts a Redis server for one contender, without persistence.
func startRedis(ctx context.Context, p Programs, c *closers) (addr string, memory func() (int64, error), err error) {
	server, err := child.Start(ctx, child.Program{
		Path: p.Redis,
		Args: func(addr string) []string {
			host, port, _ := net.SplitHostPort(addr)
			return []string{"--bind", host, "--port", port, "--save", "", "--appendonly", "no", "--daemonize", "no"}
		},
		Ready: listens,
	})
	if err != nil {
		return "", nil, err
	}
	c.add(server.Stop)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 1})
	c.add(client.Close)
	return server.Addr, func() (int64, error) {
		ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
		defer cancel()
		info, err := client.Info(ctx, "memory").Result()
		if err != nil {
			return 0, err
		}
		return memoryIn(info)
	}, nil
}

// memoryIn returns the used memory of Redis without the buffers of its clients, which come and go.
func memoryIn(info string) (used int64, err error) {
	for name, sign := range map[string]int64{"used_memory:": 1, "mem_clients_normal:": -1} {
		_, rest, _ := strings.Cut("\n"+info, "\n"+name)
		figure, _, _ := strings.Cut(rest, "\n")
		value, fault := strconv.ParseInt(strings.TrimSpace(figure), 10, 64)
		if fault != nil {
			err = fmt.Errorf("INFO memory of Redis has no figure %s", name)
		}
		used += sign * value
	}
	return used, err
}

// listens returns nil if a server listens at the address.
func listens(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// residentOf returns the bytes of memory that processes have.
func residentOf(processes []*child.Child) (sum int64, err error) {
	for _, p := range processes {
		statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
		if err != nil {
			return 0, err
		}
		fields := strings.Fields(string(statm))
		if len(fields) < 2 {
			return 0, fmt.Errorf("/proc/%d/statm has %q", p.PID(), statm)
		}
		pages, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += pages * int64(os.Getpagesize())
	}
	return sum, nil
}

// heap returns the bytes of live objects of this process.
func heap() (int64, error) {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc), nil
}

// versionOf returns the version of a module of this program.
func versionOf(module string) string {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, m := range build.Deps {
			if m.Path == module {
				return m.Version
			}
		}
	}
	return ""
}

// outputOf returns what follows a prefix in what a program prints about its version, up to the next blank.
func outputOf(ctx context.Context, prefix, program string, args ...string) string {
	out, err := exec.CommandContext(ctx, program, args...).Output()
	if _, rest, found := strings.Cut(string(out), prefix); err == nil && found {
		if words := strings.Fields(rest); len(words) > 0 {
			return words[0]
		}
	}
	return "of unknown version"
}
