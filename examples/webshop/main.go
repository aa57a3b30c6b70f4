// Webshop enqueues the receipt of an order in the order's own transaction, and sends it in
// a transaction that completes its task. So there is never an order without a receipt, nor
// a receipt without an order, whichever process dies at any time. It needs PostgreSQL, and
// starts a private one if none is given.
//
// You will see some days of a shop, each in a process of its own. Customers order, a tenth
// of the cards is declined, and in the middle of the day the process is killed, as by kill
// -9. On the last day the shop is not killed, and every receipt that is still due is sent.
// Then the books are compared.
//
//	go run ./examples/webshop
//	go run ./examples/webshop -postgres postgres://localhost/postgres
//
// In the database it uses the schemas webshop and webshop_midge, and deletes both at the
// end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/midgehq/midge/internal/testserver"
)

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, "webshop:", err)
		os.Exit(1)
	}
}

func start() error {
	if url := os.Getenv(envShop); url != "" {
		return shopMain(context.Background(), url, os.Stdin, os.Stdout)
	}
	url := flag.String("postgres", "", "`URL` of a PostgreSQL; empty starts a private one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *url != "" {
		return run(ctx, *url, days, os.Stdout)
	}
	server, err := testserver.StartPostgres(testserver.PostgresOptions{})
	if err != nil {
		return fmt.Errorf("start a PostgreSQL, as -postgres names none: %w", err)
	}
	return errors.Join(run(ctx, server.URL(), days, os.Stdout), server.Close())
}

// days is the number of days in the story.
const days = 6

// run runs the shop for some days, of which all but the last end with a kill, and prints
// the story on out. It returns an error if the books do not agree.
func run(ctx context.Context, url string, days int, out io.Writer) error {
	db, err := pgxpool.New(ctx, url)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	defer db.Close()
	if err := build(ctx, db, url); err != nil {
		return err
	}
	story := &story{url: url, db: db, out: out}
	for day := 1; day < days && err == nil; day++ {
		err = story.shortDay(ctx, day)
	}
	if err == nil {
		err = story.lastDay(ctx, days)
	}
	if err == nil {
		err = story.compare(ctx)
	}
	return errors.Join(err, tearDown(context.WithoutCancel(ctx), db))
}
