// Command nginx has nginx ask counterd about each request to a service.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/counterd/counterd/examples/internal/play"
)

// mainConf runs the site of docs/proxies.md without root and without a folder of nginx's own.
const mainConf = `
daemon off;
master_process off;
pid nginx.pid;
error_log stderr crit;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    include counterd.conf;
}
`

func main() { play.Main(run) }

func run(s *play.Stage) {
	nginx, folder := s.Program("nginx"), s.Folder()
	served := atomic.Int64{}
	service := s.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, served.Add(1)) }))
	counterd := s.Counterd("-rules", "nginx/rules.yaml")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.Check(err)
	address := listener.Addr().String()
	s.Check(listener.Close())

	s.Check(os.WriteFile(filepath.Join(folder, "nginx.conf"), []byte(mainConf), 0o600))
	s.Check(os.WriteFile(filepath.Join(folder, "counterd.conf"), []byte(strings.NewReplacer(
		"listen 80;", "listen "+address+";", "127.0.0.1:8080", host(counterd.URL), "127.0.0.1:3000", host(service),
	).Replace(site(s))), 0o600))
	s.Run(nginx, "-e", "stderr", "-p", folder, "-c", "nginx.conf")
	s.Await("tcp", address)

	for range 4 {
		s.Get("http://"+address+"/", "ada")
	}
	s.Get("http://"+address+"/", "bob")
	fmt.Println("# counterd stops: nothing passes undecided")
	counterd.Stop()
	s.Get("http://"+address+"/", "bob")
	fmt.Println("# requests that the service has served:", served.Load())
}

func host(url string) string { return strings.TrimPrefix(url, "http://") }

// site returns the configuration of docs/proxies.md.
func site(s *play.Stage) string {
	page, err := os.ReadFile("../docs/proxies.md")
	s.Check(err)
	_, block, _ := strings.Cut(string(page), "```nginx\n")
	block, _, _ = strings.Cut(block, "```")
	return block
}
