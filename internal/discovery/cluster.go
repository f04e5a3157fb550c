package discovery

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// maxAnswer bounds what a cluster says of itself.
	maxAnswer = 64 << 10
	// maxNodes bounds the nodes of a cluster: each is compared with all others.
	maxNodes = 1000
	// maxStale is how many answers in a row are refused because they are older than one
	// before. With the next the cluster is taken to be another one of that name.
	maxStale = 6
)

// The commands that ask for the nodes of a cluster, each with how its answer begins.
// Engines before 1.4.14 only know the other.
const (
	askConfig  = "config get cluster\r\n"
	headConfig = "CONFIG cluster "
	askKey     = "get AmazonElastiCache:cluster\r\n"
	headKey    = "VALUE AmazonElastiCache:cluster "
)

// Cluster asks the configuration endpoint of a cluster for its nodes, as Amazon ElastiCache
// and its kin answer. A node is named by its address, and by its host where the answer has
// no address; with ByHost the other way round.
//
// While a cluster changes, its nodes do not agree for a moment. An answer older than the
// one before is an error, so that no process goes back and forth.
type Cluster struct {
	Endpoint string // host:port
	// Dial opens a connection, for TLS or a login. nil: plain TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// ByHost names nodes by their hosts, and by address where the answer has no host: with
	// TLS the certificates are for hosts.
	ByHost bool

	mu    sync.Mutex
	known uint64 // the newest version told so far
	stale int    // answers in a row that were older
}

// ParseCluster reads a source written as host:port.
func ParseCluster(text string) (*Cluster, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil || !isHost(host) {
		return nil, fmt.Errorf("%q is not host:port", text)
	}
	if _, err := portOf(port); err != nil {
		return nil, err
	}
	return &Cluster{Endpoint: text}, nil
}

// Servers asks the endpoint, on a connection of its own.
func (c *Cluster) Servers(ctx context.Context) ([]string, error) {
	told, err := c.ask(ctx)
	var names []string
	if err == nil {
		names, err = told.names(c.ByHost)
	}
	if err == nil {
		err = c.accept(told.version)
	}
	if err != nil {
		return nil, at("cluster "+c.Endpoint, err)
	}
	return names, nil
}

// accept refuses a version that is older than one before, but for that of a cluster that
// goes on telling it.
func (c *Cluster) accept(version uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version < c.known && c.stale < maxStale {
		c.stale++
		return fmt.Errorf("it tells of version %d, after %d: it is not taken yet", version, c.known)
	}
	c.known, c.stale = version, 0
	return nil
}

func (c *Cluster) ask(ctx context.Context) (told cluster, err error) {
	dial := c.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	conn, err := dial(ctx, "tcp", c.Endpoint)
	if err != nil {
		return told, err
	}
	defer conn.Close()
	// Whatever is waited for ends with the context.
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	told, err = converse(conn)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("no answer: %w", ctx.Err())
	}
	return told, err
}

// errUnknownCommand is the answer of an engine that does not know the command.
var errUnknownCommand = errors.New("the command is not known there")

// converse asks in the new way, and where that is not known in the old one.
func converse(conn io.ReadWriter) (told cluster, err error) {
	answers := bufio.NewReader(conn)
	for _, way := range []struct{ ask, head string }{{askConfig, headConfig}, {askKey, headKey}} {
		if _, err := io.WriteString(conn, way.ask); err != nil {
			return told, err
		}
		told, err = readAnswer(answers, way.head)
		if !errors.Is(err, errUnknownCommand) {
			return told, err
		}
	}
	return told, err
}

// readAnswer reads one answer: how long it is, so many bytes, and that it ends there.
func readAnswer(from *bufio.Reader, head string) (told cluster, err error) {
	if _, err := from.Peek(1); errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
		return told, fmt.Errorf("it hung up before it answered, as one does that wants TLS or a client certificate: %w", cutShort(err))
	}
	line, err := readLine(from)
	if err != nil {
		return told, err
	}
	switch line {
	case "ERROR":
		return told, errUnknownCommand
	case "END":
		return told, errors.New("it knows of no cluster: is it the configuration endpoint of one?")
	}
	rest, found := strings.CutPrefix(line, head)
	flags, length, two := strings.Cut(rest, " ")
	size, err := strconv.ParseUint(length, 10, 32)
	if _, flagsErr := strconv.ParseUint(flags, 10, 32); !found || !two || err != nil || flagsErr != nil {
		return told, fmt.Errorf("%q is not how a cluster answers", line)
	}
	if size > maxAnswer {
		return told, fmt.Errorf("an answer of %d bytes is longer than %d", size, maxAnswer)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(from, body); err != nil {
		return told, cutShort(err)
	}
	for _, want := range []string{"", "END"} {
		line, err := readLine(from)
		if err != nil {
			return told, err
		}
		if line != want {
			return told, fmt.Errorf("the answer does not end after its %d bytes", size)
		}
	}
	if from.Buffered() > 0 {
		return told, errors.New("more is said than was asked")
	}
	return parseCluster(body)
}

// readLine reads a line that ends as Memcached's do, without its end.
func readLine(from *bufio.Reader) (string, error) {
	line, err := from.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return "", errors.New("a line of the answer is too long")
	}
	if err != nil {
		return "", cutShort(err)
	}
	text, found := bytes.CutSuffix(line, []byte("\r\n"))
	if !found {
		return "", fmt.Errorf("%q is not how a cluster answers", line)
	}
	return string(text), nil
}

// cutShort says of a connection's end that it came too soon.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// cluster is what a cluster says of itself.
type cluster struct {
	version uint64 // counts its changes
	nodes   []node
}

// node is one server of a cluster.
type node struct {
	host    string     // empty if the answer has an address only
	address netip.Addr // invalid if the answer has a host only
	port    uint16
}

// name is how the node is named, by its host or by its address, as far as the answer has
// them.
func (n node) name(byHost bool) string {
	if n.address.IsValid() && !(byHost && n.host != "") {
		return nameOf(n.address, n.port)
	}
	return net.JoinHostPort(n.host, strconv.Itoa(int(n.port)))
}

// names returns the nodes' names. Two hosts of one name, as two addresses, are a fault.
func (c cluster) names(byHost bool) ([]string, error) {
	var names []string
	for _, n := range c.nodes {
		name := n.name(byHost)
		if slices.Contains(names, name) {
			return nil, fmt.Errorf("%s is named twice", name)
		}
		names = append(names, name)
	}
	return names, nil
}

// parseCluster reads a version and, on the next line, nodes with blanks between.
func parseCluster(body []byte) (told cluster, err error) {
	version, rest, _ := strings.Cut(string(body), "\n")
	list, rest, _ := strings.Cut(rest, "\n")
	if rest != "" {
		return told, errors.New("the answer is more than a version and a list")
	}
	if told.version, err = strconv.ParseUint(version, 10, 63); err != nil {
		return told, fmt.Errorf("%q is not a version", version)
	}
	if list == "" {
		return told, ErrNone
	}
	if n := strings.Count(list, " ") + 1; n > maxNodes {
		return told, fmt.Errorf("%d nodes are more than %d", n, maxNodes)
	}
	for text := range strings.SplitSeq(list, " ") {
		n, err := parseNode(text)
		if err != nil {
			return told, err
		}
		if slices.ContainsFunc(told.nodes, func(other node) bool { return other.name(false) == n.name(false) }) {
			return told, fmt.Errorf("%s is named twice", n.name(false))
		}
		told.nodes = append(told.nodes, n)
	}
	return told, nil
}

// parseNode reads host|address|port.
func parseNode(text string) (n node, err error) {
	parts := strings.Split(text, "|")
	if len(parts) != 3 {
		return n, fmt.Errorf("%q is not host|address|port", text)
	}
	n.host = parts[0]
	if n.host != "" && !isHost(n.host) {
		return n, fmt.Errorf("%q is not a host", n.host)
	}
	if parts[1] != "" {
		n.address, err = netip.ParseAddr(parts[1])
		if err != nil || n.address.Zone() != "" {
			return n, fmt.Errorf("%q is not an address", parts[1])
		}
	}
	if n.host == "" && !n.address.IsValid() {
		return n, fmt.Errorf("%q names neither a host nor an address", text)
	}
	n.port, err = portOf(parts[2])
	return n, err
}
