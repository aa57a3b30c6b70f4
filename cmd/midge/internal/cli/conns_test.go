package cli

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
)

// asked sends a request and reads the answer. It reports whether there is one.
func asked(conn net.Conn, path string) bool {
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return false
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return false
	}
	if path == "/events" {
		return answer.StatusCode == http.StatusOK
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err == nil && answer.Body.Close() == nil
}

// streaming answers requests for /events without an end.
func streaming(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/events" {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
}

// TestOneAddressLocksNobodyOut opens 1,000 connections from one address, in each state that a connection can
// have, and checks that other addresses are served.
func TestOneAddressLocksNobodyOut(t *testing.T) {
	for what, use := range map[string]func(net.Conn) bool{
		"new":  func(net.Conn) bool { return true },
		"slow": func(conn net.Conn) bool { _, err := io.WriteString(conn, "G"); return err == nil },
		"idle": func(conn net.Conn) bool { return asked(conn, "/login") },
		"busy": func(conn net.Conn) bool { return asked(conn, "/events") },
	} {
		synctest.Test(t, func(t *testing.T) {
			p := serveIn(t, streaming)
			open := 0
			for range maxConns {
				if use(p.dialFrom("192.0.2.7")) {
					open++
				}
				synctest.Wait()
			}
			for _, other := range []string{"192.0.2.8", "2001:db8::1", "10.0.0.1"} {
				if !asked(p.dialFrom(other), "/login") {
					t.Errorf("%d connections of one address, %s: %s is not served", maxConns, what, other)
				}
			}
			if what == "busy" && open != maxConnsOf { // others make room for each other
				t.Errorf("%d busy connections of one address are open, want %d", open, maxConnsOf)
			}
		})
	}
}

// TestIdleConnectionsMakeRoom checks that an address which has all its connections is served on a new one if
// one of them is idle, and that a connection on which a request is under way stays.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serveIn(t, streaming)
		conns := make([]net.Conn, maxConnsOf)
		for i := range conns {
			path := map[bool]string{true: "/login", false: "/events"}[i == 7 || i == 9]
			if conns[i] = p.dialFrom("192.0.2.7"); !asked(conns[i], path) {
				t.Fatalf("connection %d is not served", i)
			}
			synctest.Wait()
		}
		if !asked(conns[7], "/login") { // 9 has now been idle for longer
			t.Fatal("an idle connection is not served")
		}
		synctest.Wait()
		if !asked(p.dialFrom("192.0.2.7"), "/events") {
			t.Error("a new connection is not served beside idle ones")
		}
		if !asked(conns[7], "/events") {
			t.Error("the connection that was used last has made room")
		}
		if asked(conns[9], "/events") {
			t.Error("the connection that was idle the longest is still served")
		}
		if asked(p.dialFrom("192.0.2.7"), "/login") {
			t.Error("one more is served though all are busy")
		}
	})
}

// TestAllConnectionsAreBounded fills the server from many addresses, and checks that an idle or a closed
// connection makes room for another address. A trusted proxy has more connections than one address may have.
func TestAllConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serveIn(t, streaming)
		conns := make([]net.Conn, maxConns)
		for i := range conns {
			address := "10.0.0.1" // trusted
			if i >= maxConns/2 {
				address = fmt.Sprintf("192.0.2.%d", i%100)
			}
			if conns[i] = p.dialFrom(address); !asked(conns[i], "/events") {
				t.Fatalf("connection %d is not served", i)
			}
		}
		if asked(p.dialFrom("192.0.2.200"), "/login") || asked(p.dialFrom("10.0.0.1"), "/login") {
			t.Error("one more is served")
		}
		_ = conns[0].Close()
		synctest.Wait()
		for i := range 3 { // each makes room for the next one
			if !asked(p.dialFrom(fmt.Sprintf("192.0.2.20%d", i)), "/login") {
				t.Errorf("connection %d behind one that was closed is not served", i)
			}
			synctest.Wait()
		}
	})
}
