package testserver

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports of servers lie below the range that any system gives to outgoing
// connections. Otherwise a client that dials a stopped server could occupy the server's
// port. The same holds for the cluster bus, whose port is the node's port plus
// busOffset. The standard ports of Redis (6379) and of its cluster bus (16379) are
// never used: the first is outside the range, and freePort skips the second.
const (
	firstPort   = 10_500
	portRange   = 11_000
	busOffset   = 10_000
	standardBus = 16_379
)

// freePort returns a port that is currently free on loopback and whose cluster bus port
// is free too. Another process may take it before the caller does.
func freePort() (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(portRange)
		if port != standardBus && portFree(port) && portFree(port+busOffset) {
			return port, nil
		}
	}
	return 0, errors.New("testserver: no free port in 1000 tries")
}

func portFree(port int) bool {
	listener, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	return listener.Close() == nil
}
