package testserver

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports of servers lie below what any system hands to outgoing connections, so
// that a client which dials a stopped server cannot occupy its port; the same
// holds for the cluster bus, whose port is the node's plus busOffset. The standard
// ports of Redis and of its cluster bus (6379, 16379) are no part of the range or
// left out.
const (
	firstPort   = 10_500
	portRange   = 11_000
	busOffset   = 10_000
	standardBus = 16_379
)

// freePort gives a port that is free on loopback at the moment, with a free
// cluster bus port. Another process may take it before the caller does.
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
