package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// Machine is what the figures were measured on.
type Machine struct {
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	GoMaxProcs int    `json:"gomaxprocs"`
	System     string `json:"system"`
	Go         string `json:"go"`
	Memcached  string `json:"memcached"`
}

func machineOf(ctx context.Context, config Config) Machine {
	m := Machine{
		CPU: cpuModel(), Cores: runtime.NumCPU(), GoMaxProcs: runtime.GOMAXPROCS(0), Go: runtime.Version(),
		System: runtime.GOOS + "/" + runtime.GOARCH, Memcached: "memcached of unknown version",
	}
	if out, err := exec.CommandContext(ctx, config.Memcached, "-V").Output(); err == nil {
		m.Memcached = strings.TrimSpace(string(out))
	}
	return m
}

// String returns the machine on one line.
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, GOMAXPROCS %d, %s, %s, %s with %d threads, all on loopback",
		m.CPU, m.Cores, m.GoMaxProcs, m.System, m.Go, m.Memcached, memcachedThreads)
}

// cpuModel returns what Linux calls the processor.
func cpuModel() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}
