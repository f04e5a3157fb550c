package child

import "net"

// Memcached is a Memcached server, started with more flags than where it listens.
func Memcached(path string, flags ...string) Program {
	return Program{
		Path: path,
		Args: func(addr string) []string {
			host, port, _ := net.SplitHostPort(addr)
			return append([]string{"-l", host, "-p", port, "-U", "0"}, flags...)
		},
		Ready: func(addr string) error {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				return err
			}
			return conn.Close()
		},
		Nobody: true, // as root it refuses to run
	}
}
