package callback

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/midgehq/midge"
)

// speaks returns a receiver that writes bytes of its own instead of an answer of HTTP, and then waits until the other
// side closes the connection.
func speaks(t *testing.T, write func(conn net.Conn)) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		write(conn)
		_, _ = io.Copy(io.Discard, conn)
	}
}

// TestAReceiverThatSwitchesProtocolsIsLeft answers with 101 and keeps the connection, which no context ends any more.
func TestAReceiverThatSwitchesProtocolsIsLeft(t *testing.T) {
	r := newRig(t, speaks(t, func(conn net.Conn) {
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	}), func(c *Config, _ *midge.RunnerConfig) { c.Timeout = time.Second })
	r.enqueue(midge.Retries(midge.None))
	select {
	case end := <-r.ends:
		r.wants(end, midge.OutcomeFailed, "answered 101 Switching Protocols")
	case <-time.After(30 * time.Second):
		t.Error("the attempt waits although its time is over")
		r.site.CloseClientConnections()
	}
}
