package cli

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// maxConns bounds all connections, and maxConnsOf those of one address. A trusted proxy has the connections
// of many clients, and is not bounded for itself.
const (
	maxConns   = 1000
	maxConnsOf = 100
)

// conns bounds the connections of a server. If there is no room for a new one, the connection that has been
// idle the longest makes room: of the same address if that has too many, or else of any. If none is idle, the
// new one is closed.
type conns struct {
	trusted []netip.Prefix

	mu   sync.Mutex
	all  map[net.Conn]conn
	of   map[netip.Prefix]int // how many an address has
	turn int                  // counts the changes, so that conn.since orders them
}

// conn is what is known of a connection.
type conn struct {
	from  netip.Prefix // the zero Prefix for an address that is not bounded for itself
	busy  bool         // a request is under way
	since int
}

func newConns(trusted []netip.Prefix) *conns {
	return &conns{trusted: trusted, all: make(map[net.Conn]conn), of: make(map[netip.Prefix]int)}
}

// changed is the ConnState of the server. It bounds the time of the answers that net/http writes by itself,
// such as those to OPTIONS * and to a faulty request.
func (c *conns) changed(nc net.Conn, state http.ConnState) {
	if state == http.StateActive {
		_ = nc.SetWriteDeadline(time.Now().Add(answerTime))
	}
	if surplus := c.change(nc, state); surplus != nil {
		if secure, ok := surplus.(*tls.Conn); ok {
			surplus = secure.NetConn() // the end of TLS would be sent, and wait for a peer that does not read
		}
		_ = surplus.Close()
	}
}

// change keeps the state of a connection. It returns the connection that has to be closed, nil for none.
func (c *conns) change(nc net.Conn, state http.ConnState) (surplus net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn++
	if k, known := c.all[nc]; known || state != http.StateNew {
		c.dropLocked(nc)
		if known && (state == http.StateActive || state == http.StateIdle) {
			c.addLocked(nc, conn{k.from, state == http.StateActive, c.turn})
		}
		return nil
	}
	k := conn{from: c.client(nc), since: c.turn}
	switch {
	case k.from.IsValid() && c.of[k.from] >= maxConnsOf:
		surplus = c.idleLocked(func(other conn) bool { return other.from == k.from })
	case len(c.all) >= maxConns:
		surplus = c.idleLocked(func(conn) bool { return true })
	default:
		c.addLocked(nc, k)
		return nil
	}
	if surplus == nil {
		return nc
	}
	c.dropLocked(surplus)
	c.addLocked(nc, k)
	return surplus
}

func (c *conns) addLocked(nc net.Conn, k conn) {
	c.all[nc] = k
	c.of[k.from]++
}

func (c *conns) dropLocked(nc net.Conn) {
	k, known := c.all[nc]
	if !known {
		return
	}
	delete(c.all, nc)
	if c.of[k.from]--; c.of[k.from] == 0 {
		delete(c.of, k.from)
	}
}

// idleLocked returns the connection among some that has been idle the longest, nil if none is idle.
func (c *conns) idleLocked(among func(conn) bool) (idle net.Conn) {
	for nc, k := range c.all {
		if !k.busy && among(k) && (idle == nil || k.since < c.all[idle].since) {
			idle = nc
		}
	}
	return idle
}

// client returns the address of a connection, or its /64 network in IPv6. All addresses that are none of IP
// count as one. It returns the zero Prefix for a trusted proxy.
func (c *conns) client(nc net.Conn) netip.Prefix {
	from, err := netip.ParseAddrPort(nc.RemoteAddr().String())
	addr := from.Addr().Unmap().WithZone("")
	switch {
	case err != nil:
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	case slices.ContainsFunc(c.trusted, func(p netip.Prefix) bool { return p.Contains(addr) }):
		return netip.Prefix{}
	case addr.Is4():
		return netip.PrefixFrom(addr, addr.BitLen())
	}
	return netip.PrefixFrom(addr, 64).Masked()
}
