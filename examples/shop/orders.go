package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// shop holds what the handlers and the jobs need.
type shop struct {
	db     *sql.DB
	client *midge.Client
	// within makes a transaction of db usable by the storage of the jobs. It is nil if the jobs are
	// in another database.
	within func(*sql.Tx) storage.Joined
	bank   string // the URL that charges a card
	send   func(ctx context.Context, to, text string) error
}

// The statements work on PostgreSQL and on SQLite.
const tables = `
	CREATE TABLE IF NOT EXISTS products (name TEXT PRIMARY KEY, cents BIGINT NOT NULL);
	CREATE TABLE IF NOT EXISTS orders (
		number TEXT PRIMARY KEY, mail TEXT NOT NULL, product TEXT NOT NULL, cents BIGINT NOT NULL,
		placed BIGINT NOT NULL, receipt TEXT NOT NULL DEFAULT '')`

// order is a row of orders.
type order struct {
	Number  string `json:"number"`
	Mail    string `json:"mail"`
	Product string `json:"product"`
	Cents   int64  `json:"cents"`
	Receipt string `json:"receipt"` // from the bank; empty until
}

// place stores an order and enqueues its charge in the same transaction, so that neither exists
// without the other. If the jobs are in another storage, the charge is enqueued after the commit.
func (s *shop) place(ctx context.Context, o order) (charge midge.Task, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return charge, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	var cents int64
	err = tx.QueryRowContext(ctx, "SELECT cents FROM products WHERE name = $1", o.Product).Scan(&cents)
	if err != nil {
		return charge, known(err)
	}
	_, err = tx.ExecContext(ctx,
		"INSERT INTO orders (number, mail, product, cents, placed) VALUES ($1, $2, $3, $4, $5)",
		o.Number, o.Mail, o.Product, cents, time.Now().Unix())
	if err != nil {
		return charge, err
	}
	if s.within == nil {
		if err := tx.Commit(); err != nil {
			return charge, err
		}
		return s.client.Enqueue(ctx, ChargeCard{Order: o.Number})
	}
	charge, err = s.client.With(s.within(tx)).Enqueue(ctx, ChargeCard{Order: o.Number})
	if err != nil {
		return charge, err
	}
	return charge, tx.Commit()
}

// find reads an order.
func (s *shop) find(ctx context.Context, number string) (o order, err error) {
	err = s.db.QueryRowContext(ctx,
		"SELECT number, mail, product, cents, receipt FROM orders WHERE number = $1", number).
		Scan(&o.Number, &o.Mail, &o.Product, &o.Cents, &o.Receipt)
	return o, known(err)
}

// sold returns the number and the sum of the orders that were placed from one moment to another,
// and paid.
func (s *shop) sold(ctx context.Context, from, to time.Time) (orders, cents int64, err error) {
	err = s.db.QueryRowContext(ctx,
		"SELECT count(*), coalesce(sum(cents), 0) FROM orders WHERE placed >= $1 AND placed < $2 AND receipt <> ''",
		from.Unix(), to.Unix()).Scan(&orders, &cents)
	return orders, cents, err
}

// errUnknown is returned for a number or a product that does not exist.
var errUnknown = errors.New("no such order or product")

func known(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return errUnknown
	}
	return err
}
