package testserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports of servers lie below the range that any system assigns to outgoing
// connections. Otherwise a client that dials a stopped server could occupy the server's
// port. The same holds for the cluster bus, whose port is the node's port plus
// busOffset. The standard ports of Redis (6379) and of its cluster bus (16379) are
// never used: the first is outside the range, and reservePort skips the second.
const (
	firstPort   = 10_500
	portRange   = 11_000
	busOffset   = 10_000
	standardBus = 16_379
)

// A reservation keeps a port from the other servers and proxies of this process and of other test
// processes, also while its own server is stopped. Otherwise the clients of a server that a test has
// killed might reach a server of another test. It consists of UDP sockets with the numbers of the port
// and of its cluster bus: they disturb no TCP server, and end with the process.
type reservation struct {
	port int
	held [2]net.PacketConn
}

// reservePort reserves a port that is free on loopback and whose cluster bus port is free too. A program
// that makes no reservations may take it before the caller does.
func reservePort() (*reservation, error) {
	for range 1000 {
		port := firstPort + rand.IntN(portRange)
		if port == standardBus {
			continue
		}
		r, err := reserve(port)
		if err == nil && portFree(port) && portFree(port+busOffset) {
			return r, nil
		}
		r.release()
	}
	return nil, errors.New("testserver: no free port in 1000 tries")
}

// reserve reserves a port, whether or not a server listens on it. The caller releases the reservation, also
// after an error.
func reserve(port int) (*reservation, error) {
	r := &reservation{port: port}
	for i, number := range []int{port, port + busOffset} {
		held, err := net.ListenPacket("udp", loopback(number))
		if err != nil {
			return r, fmt.Errorf("testserver: reserve port: %w", err)
		}
		r.held[i] = held
	}
	return r, nil
}

// release ends the reservation. The reservation may be nil, or released already.
func (r *reservation) release() {
	if r == nil {
		return
	}
	for _, held := range r.held {
		if held != nil {
			_ = held.Close()
		}
	}
}

// addr returns the address of the port.
func (r *reservation) addr() string { return loopback(r.port) }

func loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }

func portFree(port int) bool {
	listener, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}
