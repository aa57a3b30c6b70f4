// Wordcount counts words by MapReduce, using only Claim and Apply: no client, no runner. It
// shows how to build on package storage directly if the typed jobs do not fit.
//
//	documents ── a map task each ──▶ mappers ── partial counts ──▶ reducers ── one total a part
//
// Meanwhile mappers are killed in the middle of their work, and some oversleep their lease
// and commit too late. A step is one transaction: a map task ends together with the insert of
// its partial counts, or neither happens. So each document is counted once, whichever mapper
// dies. With -redis the mappers are processes of their own and are really killed. On memory
// they are goroutines that drop their claim.
//
// You will see each kill, each commit that came too late, the ten most frequent words, and
// whether every count is right. It exits with status 1 if a count is wrong. On a Redis
// Cluster it refuses to run, because its queues would have to share a slot.
//
//	go run ./examples/wordcount
//	go run ./examples/wordcount -redis redis://localhost:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/midgehq/midge/examples/internal/store"
	"github.com/midgehq/midge/storage"
)

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "wordcount:", err)
		os.Exit(1)
	}
}

func start() error {
	cfg := config{}
	url := store.Flag()
	flag.IntVar(&cfg.docs, "docs", 120, "documents to count")
	flag.IntVar(&cfg.mappers, "mappers", 4, "mappers at work")
	flag.IntVar(&cfg.parts, "parts", 3, "parts, with a reducer each")
	flag.IntVar(&cfg.kills, "kills", 8, "mappers to kill, and as many to oversleep")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if name := os.Getenv(envMapper); name != "" {
		return mapperMain(ctx, name, os.Stdin, os.Stdout)
	}
	opened, err := store.Open(ctx, *url)
	if err != nil {
		return err
	}
	if *url != "" {
		cfg.mapperProcess = &process{env: append(os.Environ(), envRedis+"="+*url)}
	}
	return errors.Join(run(ctx, opened, cfg, os.Stdout), opened.Close())
}

type config struct {
	docs, mappers, parts, kills int
	mapperProcess               *process // nil: mappers are goroutines
}

// run counts the words of generated documents, prints the story on out, and returns an error
// if a count is wrong.
func run(ctx context.Context, opened storage.Storage, cfg config, out io.Writer) error {
	c := newCount(opened, "wordcount."+storage.NewID(), cfg.parts)
	if !storage.Spans(opened, c.queues()...) {
		return fmt.Errorf("a step moves words from one queue to another: %w", storage.ErrSpan)
	}
	docs := documents(cfg.docs)
	if err := c.load(ctx, docs); err != nil {
		return err
	}
	sayf(out, "%d documents wait for %d mappers and %d reducers", len(docs), cfg.mappers, cfg.parts)
	crew := newCrew(c, cfg, out)
	if err := crew.work(ctx); err != nil {
		return err
	}
	sayf(out, "%d mappers were killed, %d commits came too late and were refused", crew.killed, crew.refused)
	got, err := c.result(ctx)
	if err != nil {
		return err
	}
	if err := c.remove(ctx); err != nil {
		return err
	}
	printTop(out, got, 10)
	return compare(out, got, countAll(docs))
}

// sayf prints a line.
func sayf(out io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(out, format+"\n", args...)
}
