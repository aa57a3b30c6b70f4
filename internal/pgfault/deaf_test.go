package pgfault

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

// deafProxy is a proxy between clients and a server that can drop notifications.
// Everything else passes, so the connections seem healthy.
type deafProxy struct {
	target string
	dir    string
	deaf   atomic.Bool
	lost   atomic.Int64 // dropped notifications

	listener net.Listener
	serving  sync.WaitGroup // the listener and the connections; they end with the test
}

// newDeafProxy starts a proxy on a socket of its own in front of a server.
func newDeafProxy(t *testing.T, server string) *deafProxy {
	t.Helper()
	cfg := must(pgx.ParseConfig(server))(t)
	p := &deafProxy{target: filepath.Join(cfg.Host, ".s.PGSQL.5432")}
	p.dir = must(os.MkdirTemp("", "midge-deaf-"))(t) //nolint:usetesting // a socket's path is bounded
	p.listener = must(net.Listen("unix", filepath.Join(p.dir, ".s.PGSQL.5432")))(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context())) // lives until its users have closed
	p.serving.Go(func() { p.serve(ctx) })
	t.Cleanup(func() {
		cancel()
		_ = p.listener.Close()
		p.serving.Wait()
		_ = os.RemoveAll(p.dir)
	})
	return p
}

func (p *deafProxy) url() string {
	return "postgres:///postgres?user=midge&sslmode=disable&host=" + url.QueryEscape(p.dir)
}

func (p *deafProxy) serve(ctx context.Context) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.serving.Go(func() { p.forward(ctx, client) })
	}
}

// forward connects a client to the server until one of them closes or ctx ends.
func (p *deafProxy) forward(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.Dial("unix", p.target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	var ways sync.WaitGroup
	ways.Go(func() {
		defer cancel()
		_, _ = io.Copy(server, client)
	})
	ways.Go(func() {
		defer cancel()
		_ = p.carry(client, server)
	})
	<-ctx.Done()
	_ = client.Close()
	_ = server.Close()
	ways.Wait()
}

// carry forwards the messages of the server. A message is a letter, a length of four
// bytes that includes itself, and the rest. 'A' is a notification.
func (p *deafProxy) carry(client io.Writer, server io.Reader) error {
	var in []byte
	chunk := make([]byte, 64<<10)
	for {
		n, err := server.Read(chunk)
		in = append(in, chunk[:n]...)
		out := make([]byte, 0, len(in))
		for len(in) >= 5 {
			size := 1 + int(binary.BigEndian.Uint32(in[1:]))
			if len(in) < size {
				break
			}
			if in[0] == 'A' && p.deaf.Load() {
				p.lost.Add(1)
			} else {
				out = append(out, in[:size]...)
			}
			in = in[size:]
		}
		_, failed := client.Write(out)
		if err != nil || failed != nil {
			return errors.Join(err, failed)
		}
	}
}
