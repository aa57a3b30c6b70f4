// Peers serves the dashboards of asynq, River and BullMQ on data like the data of a scene, so that they can
// be drawn beside midge's dashboard. Once all of them are ready, it prints one line of JSON: see [told]. It
// ends when its input ends.
//
//	go -C dashboard/browser/peers run . -scene night
//
// Peers starts a Redis and a PostgreSQL of its own. bull-board needs node and npm, which downloads packages
// into the user's cache. A dashboard that cannot run is left out, and the line of JSON has the reason.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/midgehq/midge/internal/testserver"
)

// told is the line of JSON that the program prints.
type told struct {
	Peers []peer            `json:"peers"`
	Left  map[string]string `json:"left"` // the reason why a peer is left out, by its name
}

// peer is a dashboard that is being served.
type peer struct {
	Name  string            `json:"name"`
	URL   string            `json:"url"`
	Pages map[string]string `json:"pages"` // paths, by the kind of view
}

func main() {
	name := flag.String("scene", "night", "calm or night")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	go func() { // ends when the input or the process ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	err := serve(ctx, *name)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// serve runs all peers until ctx ends.
func serve(ctx context.Context, name string) error {
	rows, err := rowsOf(name)
	if err != nil {
		return err
	}
	var all stack
	defer all.close()
	out := told{Left: map[string]string{}}
	add := func(name string, serve func() (peer, error)) {
		p, err := serve()
		if err != nil {
			out.Left[name] = err.Error()
			return
		}
		p.Name = name
		out.Peers = append(out.Peers, p)
	}
	redis, redisErr := testserver.Start(testserver.Options{})
	if redisErr == nil {
		all.add(redis.Close)
	}
	onRedis := func(serve func(context.Context, *stack, string, []row) (peer, error)) func() (peer, error) {
		return func() (peer, error) {
			if redisErr != nil {
				return peer{}, redisErr
			}
			return serve(ctx, &all, redis.Addr(), rows)
		}
	}
	add("asynqmon", onRedis(serveAsynqmon))
	add("River UI", func() (peer, error) { return serveRiver(ctx, &all, rows) })
	add("bull-board", onRedis(serveBullBoard))
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// stack has the functions that close everything. The function that was added last is called first.
type stack []func() error

func (s *stack) add(end func() error) { *s = append(*s, end) }

func (s *stack) close() {
	for _, end := range slices.Backward(*s) {
		if err := end(); err != nil {
			fmt.Fprintln(os.Stderr, "peers:", err)
		}
	}
}

// listen serves a handler until all is closed, and returns its URL.
func listen(ctx context.Context, all *stack, h http.Handler) (string, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }() // ends when the server is closed
	all.add(func() error {
		err := server.Close()
		<-served
		return err
	})
	return "http://" + listener.Addr().String(), nil
}

// await waits until a condition holds, for a minute at most.
func await(ctx context.Context, what string, is func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := is(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waited for %s", what), ctx.Err())
		}
	}
}
