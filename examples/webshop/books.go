package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/midgehq/midge/storage/postgres"
)

// tasks is the schema of midge's tables.
const tasks = "webshop_midge"

// build creates the tables anew. They have no constraint that prevents a mail from being
// sent twice or without an order.
func build(ctx context.Context, db *pgxpool.Pool, url string) error {
	if err := tearDown(ctx, db); err != nil {
		return err
	}
	_, err := db.Exec(ctx, `CREATE SCHEMA webshop;
		CREATE TABLE webshop.orders (number text PRIMARY KEY);
		CREATE TABLE webshop.mails (number text NOT NULL)`)
	if err != nil {
		return fmt.Errorf("make the tables: %w", err)
	}
	return postgres.Migrate(ctx, postgres.Config{URL: url, Schema: tasks})
}

func tearDown(ctx context.Context, db *pgxpool.Pool) error {
	_, err := db.Exec(ctx, "DROP SCHEMA IF EXISTS webshop, "+tasks+" CASCADE")
	if err != nil {
		return fmt.Errorf("drop the tables: %w", err)
	}
	return nil
}

// books holds the numbers in both tables, sorted.
type books struct{ orders, mails []string }

func read(ctx context.Context, db *pgxpool.Pool) (b books, err error) {
	if b.orders, err = numbers(ctx, db, "SELECT number FROM webshop.orders"); err == nil {
		b.mails, err = numbers(ctx, db, "SELECT number FROM webshop.mails")
	}
	return b, err
}

func numbers(ctx context.Context, db *pgxpool.Pool, sql string) ([]string, error) {
	rows, err := db.Query(ctx, sql)
	if err != nil {
		return nil, fmt.Errorf("read the books: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	slices.Sort(all)
	return all, err
}

// agree returns an error that lists what is wrong with the books: an order without its
// mail, a mail without its order, a second mail, a confirmed order that does not exist,
// or a declined order that does.
func (b books) agree(confirmed, declined []string) error {
	var wrong []error
	complain := func(what, number string) { wrong = append(wrong, fmt.Errorf("%s: %s", what, number)) }
	sent := make(map[string]int, len(b.mails))
	for _, number := range b.mails {
		if sent[number]++; sent[number] > 1 {
			complain("a mail was sent again", number)
		}
		if !b.has(number) {
			complain("a mail without an order", number)
		}
	}
	for _, number := range b.orders {
		if sent[number] == 0 {
			complain("an order without a mail", number)
		}
	}
	for _, number := range confirmed {
		if !b.has(number) {
			complain("a confirmed order is lost", number)
		}
	}
	for _, number := range declined {
		if b.has(number) {
			complain("a declined order came about", number)
		}
	}
	return errors.Join(wrong...)
}

// has reports whether an order exists.
func (b books) has(number string) bool {
	_, found := slices.BinarySearch(b.orders, number)
	return found
}
