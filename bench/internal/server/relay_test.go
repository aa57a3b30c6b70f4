package server

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// stream contains three commands, one of them with line ends in its string.
const stream = "*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$6\r\n*1\r\n\r\n\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n"

func TestRequestsAreCountedInPieces(t *testing.T) {
	for size := 1; size <= len(stream); size++ {
		var r requests
		for rest := stream; rest != ""; {
			n := min(size, len(rest))
			r.take([]byte(rest[:n]))
			rest = rest[n:]
		}
		if r.count != 3 {
			t.Errorf("in pieces of %d bytes there are %d commands, want 3", size, r.count)
		}
	}
}

// echo starts a server that sends every line back.
func echo(t *testing.T) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		lines := bufio.NewScanner(conn)
		for lines.Scan() {
			_, _ = fmt.Fprintf(conn, "%s\r\n", lines.Text())
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-ended })
	return listener.Addr().String()
}

func TestRelayDelaysAndCounts(t *testing.T) {
	const delay = 20 * time.Millisecond
	relay, err := StartRelay(t.Context(), echo(t), delay)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", relay.Addr())
	if err != nil {
		t.Fatal(err)
	}
	replies := bufio.NewReader(conn)
	started := time.Now()
	for trip := range 2 {
		if _, err := conn.Write([]byte("*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPONG\r\n")); err != nil {
			t.Fatal(err)
		}
		for want := range strings.FieldsSeq("*1 $4 PING *1 $4 PONG") {
			line, err := replies.ReadString('\n')
			if strings.TrimSpace(line) != want || err != nil {
				t.Fatalf("trip %d: got %q, %v, want %q", trip, line, err, want)
			}
		}
	}
	if took := time.Since(started); took < 2*delay {
		t.Errorf("two round trips took %v, want %v or more", took, 2*delay)
	}
	if got, want := relay.Traffic(), (Traffic{Commands: 4, Trips: 2}); got != want {
		t.Errorf("the traffic is %+v, want %+v", got, want)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := relay.Close(); err != nil {
		t.Error(err)
	}
}

func TestFieldOfInfo(t *testing.T) {
	const info = "# Memory\r\nused_memory_human:1M\r\nused_memory:1024\r\n"
	if got := field(info, "used_memory"); got != "1024" {
		t.Errorf("used_memory is %q, want 1024", got)
	}
	if got := field(info, "maxmemory"); got != "" {
		t.Errorf("a field that is not there is %q, want none", got)
	}
}
