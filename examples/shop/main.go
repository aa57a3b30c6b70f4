// Shop is a small web shop as a new user of midge would write it: an API that takes orders, the
// jobs behind it, metrics, traces, logs, probes and tests. Copy the parts that you need.
//
//	go -C examples/shop run .
//
// It needs only Go, and prints the address of midge's dashboard, with a secret that admits to it. The
// dashboard shows live data: simulated customers order something each second, and sometimes in
// crowds. An order is written in one transaction with the task that charges its card, and the API
// waits for the result of that task. Some cards are declined and some addresses are wrong: those
// tasks die. Mails are retried, a catalogue is imported with checkpoints, unpaid orders are dropped
// every five minutes, and a report is sent each night. Ctrl-C ends it, -v shows its log.
//
//	POST /orders with mail, product           201 paid, 402 declined, 202 the bank takes its time
//	POST /orders/NUMBER/charge                charges again what was declined, once at a time
//	GET  /orders/NUMBER
//	POST /catalogue with lines "name,cents"   202 and the task of the import; see GET /imports/ID
//	GET  /midge/                              the dashboard
//	GET  /metrics, /healthz, /readyz          for Prometheus, and for the probes of Kubernetes
//
// The orders and the jobs are in one SQLite file, in the cache folder of the user who runs it. Each
// can be elsewhere:
//
//	go -C examples/shop run . -db postgres://localhost/shop
//	go -C examples/shop run . -jobs redis://localhost:6379 -traces http://localhost:4318
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/metrics/prometheus"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/tracing/otel"
)

// config holds the values of the flags.
type config struct {
	db, jobs, bank, traces string
	customers              time.Duration
	token                  string // of the dashboard
}

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

func start() error {
	var cfg config
	flag.StringVar(&cfg.db, "db", "",
		"where orders are: the URL of a PostgreSQL, or the path of an SQLite file; empty is a file of your own")
	flag.StringVar(&cfg.jobs, "jobs", "",
		"where jobs are: a `URL` of redis:, postgres:, sqlite: or memory:; empty is where orders are")
	flag.StringVar(&cfg.bank, "bank", "", "the `URL` that charges cards; empty is a bank of the shop's own")
	flag.StringVar(&cfg.traces, "traces", "", "where traces go: stdout, or the `URL` of an OTLP server")
	flag.DurationVar(&cfg.customers, "customers", time.Second, "how often somebody orders; 0 is never")
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	verbose := flag.Bool("v", false, "log each job, mail and order, and not errors alone")
	flag.Parse()
	if cfg.db == "" {
		var err error
		if cfg.db, err = ownFile(); err != nil {
			return err
		}
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second Ctrl-C ends the process at once
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *addr)
	if err != nil {
		return fmt.Errorf("%w; -addr 127.0.0.1:0 takes a free port", err)
	}
	cfg.token = rand.Text() // a new one for each start: whoever opens the address may do everything
	fmt.Println("http://" + listener.Addr().String() + "/midge/login?token=" + cfg.token)
	logged := slog.HandlerOptions{Level: slog.LevelError}
	if *verbose {
		logged.Level = slog.LevelInfo
	}
	return serve(ctx, cfg, listener, slog.New(slog.NewTextHandler(os.Stderr, &logged)))
}

// ownFile returns the path of a file that only this user can read, in the user's cache folder. The
// folder for temporary files is shared by all users of a machine: another user could put a file or a
// link there first.
func ownFile() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w; -db names the file of the orders", err)
	}
	folder := filepath.Join(cache, "midge-shop")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(folder, "shop.db")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) // SQLite would let others read it
	if err != nil {
		return "", err
	}
	return path, file.Close()
}

// serve runs the shop until ctx ends.
func serve(ctx context.Context, cfg config, listener net.Listener, log *slog.Logger) (err error) {
	defer func() { _ = listener.Close() }()
	db, err := openOrders(ctx, cfg.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	store, within, err := openJobs(ctx, cfg.jobs, cfg.db, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	traces, err := newTraces(ctx, cfg.traces)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, traces.Shutdown(context.WithoutCancel(ctx))) }()

	tracing, err := otel.New(otel.Config{TracerProvider: traces, Child: true})
	if err != nil {
		return err
	}
	metrics, err := prometheus.New(store, prometheus.Config{})
	if err != nil {
		return err
	}
	var clients midge.ClientConfig
	tracing.Client(&clients)
	client, err := midge.NewClient(store, clients)
	if err != nil {
		return err
	}
	runners := midge.RunnerConfig{Slog: log}
	tracing.Runner(&runners)
	metrics.Runner(&runners)
	runner, err := midge.NewRunner(store, runners)
	if err != nil {
		return err
	}
	base := "http://" + listener.Addr().String()
	s := &shop{
		db: db, client: client, within: within, bank: cmp.Or(cfg.bank, base+"/bank"), send: mailServer(log),
	}
	if err := s.register(runner); err != nil {
		return err
	}
	defer startCustomers(ctx, cfg.customers, base, log)()
	board, stop, err := openBoard(ctx, store, cfg.token, log)
	if err != nil {
		return err
	}
	defer stop()
	return work(ctx, runner, s.pages(runner, metrics, board), listener)
}

// startCustomers starts the customers, and returns the function that stops them.
func startCustomers(ctx context.Context, every time.Duration, base string, log *slog.Logger) (stop func()) {
	if every <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var shopping sync.WaitGroup
	shopping.Go(func() { customers(ctx, base, every, log) })
	return func() { cancel(); shopping.Wait() }
}

// openBoard returns midge's dashboard, which records its history until stop is called. The token admits to
// it. A shop with users of its own would set Config.Who instead.
func openBoard(
	ctx context.Context, store storage.Storage, token string, log *slog.Logger,
) (http.Handler, func(), error) {
	cfg := dashboard.Config{Base: "/midge", Name: "shop", Token: token, Log: log}
	board, err := dashboard.Handler(store, cfg)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var keeping sync.WaitGroup
	keeping.Go(func() { board.Run(ctx) })
	return board, func() { cancel(); keeping.Wait() }, nil
}

// work serves requests and runs jobs until ctx ends. Then it drains: first the requests, which
// may enqueue and wait for jobs, then the jobs.
func work(ctx context.Context, runner *midge.Runner, handler http.Handler, listener net.Listener) error {
	if err := runner.Start(ctx); err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	var err error
	select {
	case <-ctx.Done():
	case err = <-served: // Serve always returns an error
	}
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(draining), runner.Shutdown(draining))
}

// pages returns the API and the pages for Prometheus and Kubernetes.
func (s *shop) pages(runner *midge.Runner, metrics *prometheus.Metrics, board http.Handler) http.Handler {
	mux := s.routes()
	mux.Handle("/midge/", board)
	mux.Handle("GET /metrics", metrics.Handler())
	mux.HandleFunc("GET /healthz", probe(runner.Healthy))
	mux.HandleFunc("GET /readyz", probe(runner.Ready))
	mux.HandleFunc("POST /bank", bank)
	return mux
}

// probe returns a handler for a probe of Kubernetes.
func probe(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	}
}
