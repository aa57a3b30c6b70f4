package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// envShop is the environment variable that makes this program the shop. It holds the URL
// of the database.
const envShop = "WEBSHOP_DATABASE"

// shopMain runs the shop and prints its address on say. When hear ends, which happens at
// the latest with the parent, the shop takes no more orders, finishes its running jobs
// and closes.
func shopMain(ctx context.Context, url string, hear io.Reader, say io.Writer) (err error) {
	s, err := open(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	runner, err := s.runner()
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	go func() { // ends with the parent
		_, _ = io.Copy(io.Discard, hear)
		_ = server.Shutdown(ctx)
	}()
	sending, stop := context.WithCancel(ctx)
	defer stop()
	ran := make(chan error, 1)
	go func() { ran <- runner.Run(sending) }()
	if _, err := fmt.Fprintln(say, listener.Addr()); err != nil {
		return errors.Join(fmt.Errorf("say the address: %w", err), listener.Close())
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	stop()
	return <-ran
}

// process is an open shop.
type process struct {
	cmd  *exec.Cmd
	in   io.Closer
	base string // prefix of its URLs
}

// launch opens a shop in a process of its own, which runs this program again.
func launch(url string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the shop: %w", err)
	}
	cmd := exec.Command(self) //nolint:gosec,noctx // this program itself; it ends with its input
	cmd.Env = append(os.Environ(), envShop+"="+url)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("open the shop: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("open the shop: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("open the shop: %w", err)
	}
	p := &process{cmd: cmd, in: in}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hear the shop's address: %w", err), p.kill())
	}
	p.base = "http://" + strings.TrimSpace(addr)
	return p, nil
}

// kill ends the shop at once with SIGKILL, in the middle of its work.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	_ = p.cmd.Wait() // the error only reports that it was killed
	return err
}

// close closes the shop in an orderly way.
func (p *process) close() error {
	err := p.in.Close()
	return errors.Join(err, p.cmd.Wait())
}
