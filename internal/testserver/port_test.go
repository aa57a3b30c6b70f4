package testserver

import (
	"net"
	"testing"
)

// TestAPortIsReserved checks that no reservation includes a port, or a cluster bus, of another one, and
// that a server of TCP may use both.
func TestAPortIsReserved(t *testing.T) {
	port, err := reservePort()
	must(t, err)
	defer port.release()
	for _, number := range []int{port.port, port.port - busOffset, port.port + busOffset} {
		other, err := reserve(number)
		other.release()
		if err == nil {
			t.Errorf("port %d is reserved beside port %d, want an error", number, port.port)
		}
	}
	for _, number := range []int{port.port, port.port + busOffset} {
		listener, err := net.Listen("tcp", loopback(number))
		must(t, err)
		must(t, listener.Close())
	}
	port.release()
	again, err := reserve(port.port)
	must(t, err)
	again.release()
}

// TestAStoppedServerKeepsItsPort checks that a server and a proxy reserve their ports while they are
// stopped, and no longer than until they are closed.
func TestAStoppedServerKeepsItsPort(t *testing.T) {
	Require(t)
	server, err := Start(Options{})
	must(t, err)
	defer func() { _ = server.Close() }()
	proxy, err := StartProxy(server.Addr())
	must(t, err)
	defer proxy.Close()
	must(t, server.Kill())
	proxy.Refuse()
	for _, port := range []int{server.port.port, proxy.port.port} {
		other, err := reserve(port)
		other.release()
		if err == nil {
			t.Errorf("the port %d of a stopped server is reserved for another, want an error", port)
		}
	}
	must(t, server.Restart())
	must(t, server.Close())
	proxy.Close()
	for _, port := range []int{server.port.port, proxy.port.port} {
		other, err := reserve(port)
		must(t, err)
		other.release()
	}
}
