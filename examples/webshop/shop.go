package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage/postgres"
)

const queue = "receipts"

// Receipt is the job that sends the mail of an order.
type Receipt struct{ Order string }

// Options lets a task lose its runner as often as this shop is killed. By default, a task
// dies when three runners have died while running it.
func (Receipt) Options() midge.Options { return midge.Options{Queue: queue, CrashLimit: 100} }

// shop holds the connections of the shop. The orders and the tasks are in one database.
type shop struct {
	db     *pgxpool.Pool
	store  *postgres.Storage
	client *midge.Client
}

// errDeclined is the reason for which an order is rolled back.
var errDeclined = errors.New("the card was declined")

// order takes an order: its row and the task of its receipt commit together, or neither
// does.
func (s *shop) order(ctx context.Context, number string, declined bool) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO webshop.orders VALUES ($1)", number); err != nil {
			return err
		}
		if _, err := s.client.With(s.store.Within(tx)).Enqueue(ctx, Receipt{number}); err != nil {
			return err
		}
		if declined {
			return errDeclined // which rolls back
		}
		return nil
	})
}

// send sends a receipt: the mail and the end of the task commit together, or neither does.
// A mail is a row here, as in an outbox: what leaves the database cannot be taken back.
func (s *shop) send(ctx context.Context, job Receipt) error {
	return pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO webshop.mails VALUES ($1)", job.Order); err != nil {
			return err
		}
		return midge.CompleteWith(ctx, s.store.Within(tx))
	})
}

// ServeHTTP takes an order: POST /orders with its number, and declined=1 for a bad card.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := s.order(r.Context(), r.FormValue("number"), r.FormValue("declined") != "")
	switch {
	case errors.Is(err, errDeclined):
		http.Error(w, err.Error(), http.StatusPaymentRequired)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		w.WriteHeader(http.StatusCreated)
	}
}

// open opens the shop. The caller closes it.
func open(ctx context.Context, url string) (*shop, error) {
	db, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	store, err := postgres.Open(ctx, postgres.Config{Pool: db, Schema: tasks})
	if err != nil {
		db.Close()
		return nil, err
	}
	client, err := midge.NewClient(store, midge.ClientConfig{})
	if err != nil {
		db.Close()
		return nil, errors.Join(err, store.Close())
	}
	return &shop{db: db, store: store, client: client}, nil
}

func (s *shop) close() error {
	err := s.store.Close()
	s.db.Close()
	return err
}

// runner returns a runner that sends the receipts. Its leases are short, so that the
// leases of a killed shop soon run out; the default is 30 s.
func (s *shop) runner() (*midge.Runner, error) {
	runner, err := midge.NewRunner(s.store, midge.RunnerConfig{
		Queues: []string{queue}, Lease: time.Second, Grace: time.Second,
	})
	if err != nil {
		return nil, err
	}
	return runner, midge.Handle(runner, s.send)
}
