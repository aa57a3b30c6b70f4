package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// service is an HTTP server that admits a quota of pages of each customer in any window of time, and answers
// 429 with the header Retry-After beyond that.
type service struct {
	url    string
	server *http.Server
	done   chan error

	mu   sync.Mutex             // guards used
	used map[string][]time.Time // when each page of a customer was sent, of the last window
}

// listen starts a service on a free port of this machine.
func listen(ctx context.Context) (*service, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	s := &service{url: "http://" + l.Addr().String(), done: make(chan error, 1)}
	s.used = make(map[string][]time.Time)
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: time.Second}
	go func() { s.done <- s.server.Serve(l) }() // ends when close is called
	return s, nil
}

func (s *service) close() {
	_ = s.server.Close()
	if err := <-s.done; !errors.Is(err, http.ErrServerClosed) {
		fmt.Println("the service ended:", err)
	}
}

// ServeHTTP answers GET /CUSTOMER?pages=N.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pages, err := strconv.Atoi(r.FormValue("pages"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if wait := s.use(strings.TrimPrefix(r.URL.Path, "/"), pages); wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	time.Sleep(100 * time.Millisecond) // the work of the service
}

// use counts pages of a customer. If they go beyond the quota, it counts none and returns how long to wait.
func (s *service) use(customer string, pages int) (wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	used := s.used[customer]
	for len(used) > 0 && now.Sub(used[0]) >= window {
		used = used[1:]
	}
	if over := len(used) + pages - quota; over > 0 {
		s.used[customer] = used
		return window - now.Sub(used[min(over, len(used))-1])
	}
	for range pages {
		used = append(used, now)
	}
	s.used[customer] = used
	return 0
}
