package postgres_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// The storage opens connections of its own, to the server that a URL names.
func ExampleOpen() { //nolint:testableexamples // there is no server
	ctx := context.Background()
	store, err := postgres.Open(ctx, postgres.Config{URL: "postgres://shop@localhost/shop"})
	if err != nil {
		slog.Error(err.Error())
		return
	}
	defer func() { _ = store.Close() }()
	// client, err := midge.NewClient(store, midge.ClientConfig{})
}

// Each process migrates the schema as it starts: one of them works, and the others wait for it.
func ExampleMigrate() { //nolint:testableexamples // there is no server
	ctx := context.Background()
	cfg := postgres.Config{URL: "postgres://shop@localhost/shop"}
	if err := postgres.Migrate(ctx, cfg); err != nil {
		slog.Error(err.Error())
		return
	}
	store, err := postgres.Open(ctx, cfg)
	if err != nil {
		slog.Error(err.Error())
		return
	}
	defer func() { _ = store.Close() }()
}

// The statements of the next migration are printed for a review, or for a tool that applies them.
func ExampleMigrationSQL() { //nolint:testableexamples // there is no server
	text, err := postgres.MigrationSQL(context.Background(), postgres.Config{
		URL: "postgres://owner@localhost/shop", Schema: "midge",
	})
	if err != nil {
		slog.Error(err.Error())
		return
	}
	fmt.Print(text) // nothing if the schema is up to date
}

// An order and its task commit together, or neither does. With a client of midge the call is
// client.With(store.Within(tx)).Enqueue(ctx, Receipt{Order: 7}).
func ExampleStorage_Within() { //nolint:testableexamples // there is no server
	ctx := context.Background()
	db, err := pgxpool.New(ctx, "postgres://shop@localhost/shop")
	if err != nil {
		slog.Error(err.Error())
		return
	}
	defer db.Close()
	store, err := postgres.Open(ctx, postgres.Config{Pool: db})
	if err != nil {
		slog.Error(err.Error())
		return
	}
	defer func() { _ = store.Close() }()
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO orders VALUES (7)"); err != nil {
			return err
		}
		applied, err := store.Within(tx).Apply(ctx, storage.Call{}, storage.Tx{Inserts: []storage.Insert{{
			Ref: storage.Ref{Queue: "mail", ID: storage.NewID()}, Kind: "receipt",
			Encoding: "json", Payload: []byte(`{"Order":7}`), MaxRetries: 20, CrashLimit: 3,
		}}})
		if err != nil {
			return err
		}
		return applied[0].Err
	})
	if err != nil {
		slog.Error(err.Error())
	}
}
