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

// envShop tells this program that it is the shop, and where its database is.
const envShop = "WEBSHOP_DATABASE"

// shopMain keeps the shop and says its address on say. It closes when hear ends, which it
// does with the parent at the latest: no more orders, and what runs is finished.
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

// process is a shop that is open.
type process struct {
	cmd  *exec.Cmd
	in   io.Closer
	base string // of its URLs
}

// launch opens a shop in a process of its own, this program again.
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

// kill ends the shop at once, wherever it is: SIGKILL leaves it no last word.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	_ = p.cmd.Wait() // that it was killed is known
	return err
}

// close closes the shop in order.
func (p *process) close() error {
	err := p.in.Close()
	return errors.Join(err, p.cmd.Wait())
}
