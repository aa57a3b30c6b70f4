package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge"
)

// register registers the jobs and the schedule, for main and for the tests.
func (s *shop) register(r *midge.Runner) error {
	return errors.Join(
		midge.Handle(r, s.chargeCard),
		midge.Handle(r, s.confirmOrder),
		midge.Handle(r, s.askForReview),
		midge.Handle(r, s.importCatalogue),
		midge.Handle(r, s.nightlyReport),
		midge.Handle(r, s.dropUnpaid),
		r.Periodic(midge.Cron("0 3 * * *"), NightlyReport{}), // UTC
		r.Periodic(midge.Every(5*time.Minute), DropUnpaid{}),
	)
}

// ChargeCard makes the bank charge the card of an order. Its result is the bank's receipt.
type ChargeCard struct{ Order string }

// Options allows only one charge of an order at a time, and allows the bank five seconds.
func (ChargeCard) Options() midge.Options {
	return midge.Options{
		Queue: "payments", Timeout: 5 * time.Second,
		Unique: &midge.Unique{By: []string{"Order"}},
	}
}

func (s *shop) chargeCard(ctx context.Context, job ChargeCard) error {
	o, err := s.find(ctx, job.Order)
	if err != nil {
		return err
	}
	if o.Receipt == "" {
		if o.Receipt, err = s.askBank(ctx, o); err != nil {
			return err
		}
		_, err = s.db.ExecContext(ctx, "UPDATE orders SET receipt = $1 WHERE number = $2", o.Receipt, o.Number)
		if err != nil {
			return err
		}
	}
	return errors.Join( // enqueued when this job has succeeded, and only then
		midge.FollowUp(ctx, ConfirmOrder{Order: o.Number, To: o.Mail}),
		midge.FollowUp(ctx, AskForReview{To: o.Mail, Product: o.Product}, midge.In(72*time.Hour)),
		midge.SetResult(ctx, o.Receipt),
	)
}

func (s *shop) askBank(ctx context.Context, o order) (receipt string, err error) {
	form := url.Values{"order": {o.Number}, "cents": {strconv.FormatInt(o.Cents, 10)}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.bank, strings.NewReader(form.Encode()))
	if err != nil {
		return "", midge.Discard(err)
	}
	run, _ := midge.Current(ctx)
	req.Header.Set("Idempotency-Key", run.IdempotencyKey) // a second attempt does not charge a second time
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return "", err
	case res.StatusCode == http.StatusPaymentRequired:
		return "", midge.Discard(errors.New("the card was declined"))
	case res.StatusCode != http.StatusOK:
		return "", fmt.Errorf("the bank answers %s", res.Status)
	}
	return string(body), nil
}

// ConfirmOrder sends a mail that an order was paid. It is retried after 1 s, 2 s, 4 s and so on.
type ConfirmOrder struct{ Order, To string }

// Options returns the options of a mail that a customer waits for.
func (ConfirmOrder) Options() midge.Options {
	return midge.Options{Queue: "mail", Priority: 5, Backoff: midge.Geometric{First: time.Second}.Delay}
}

func (s *shop) confirmOrder(ctx context.Context, job ConfirmOrder) error {
	return s.send(ctx, job.To, "Thank you for your order "+job.Order+".")
}

// AskForReview sends a mail with a question three days after the order.
type AskForReview struct{ To, Product string }

// Options names the queue of the mails.
func (AskForReview) Options() midge.Options { return midge.Options{Queue: "mail"} }

func (s *shop) askForReview(ctx context.Context, job AskForReview) error {
	return s.send(ctx, job.To, "How do you like your "+job.Product+"?")
}

// NightlyReport sends a mail with the sales of the day before its tick.
type NightlyReport struct{}

func (s *shop) nightlyReport(ctx context.Context, _ NightlyReport) error {
	run, _ := midge.Current(ctx)
	orders, cents, err := s.sold(ctx, run.Tick.AddDate(0, 0, -1), run.Tick)
	if err != nil {
		return err
	}
	return s.send(ctx, "owner@shop.example", fmt.Sprintf("%d orders, %d.%02d EUR", orders, cents/100, cents%100))
}

// DropUnpaid deletes the orders that were not paid for a week, which is longer than their cards
// are tried.
type DropUnpaid struct{}

func (s *shop) dropUnpaid(ctx context.Context, _ DropUnpaid) error {
	_, err := s.db.ExecContext(ctx, "DELETE FROM orders WHERE receipt = '' AND placed < $1",
		time.Now().AddDate(0, 0, -7).Unix())
	return err
}

// ImportCatalogue stores the products of a CSV file: name and price in cents.
type ImportCatalogue struct{ CSV string }

// Options keeps the task for an hour, so that a client can see that it has completed.
func (ImportCatalogue) Options() midge.Options {
	return midge.Options{Queue: "imports", Keep: midge.Keep{For: time.Hour}}
}

// imported is the checkpoint and the progress of an import.
type imported struct {
	Rows int `json:"rows"`
	Of   int `json:"of"`
}

func (s *shop) importCatalogue(ctx context.Context, job ImportCatalogue) error {
	rows, err := csv.NewReader(strings.NewReader(job.CSV)).ReadAll()
	if err != nil {
		return midge.Discard(err) // a retry would not help
	}
	done := imported{Of: len(rows)}
	if _, err := midge.LoadCheckpoint(ctx, &done); err != nil {
		return err
	}
	for batch := range slices.Chunk(rows[done.Rows:], 10) {
		for _, row := range batch {
			if err := s.offer(ctx, row); err != nil {
				return err
			}
		}
		done.Rows += len(batch)
		if err := errors.Join(midge.Checkpoint(ctx, done), midge.Progress(ctx, done)); err != nil {
			return err
		}
	}
	return nil
}

// offer stores a product: its name and its price in cents.
func (s *shop) offer(ctx context.Context, row []string) error {
	if len(row) != 2 {
		return midge.Discard(fmt.Errorf("%q is no name and price", row))
	}
	cents, err := strconv.ParseInt(row[1], 10, 64)
	if err != nil {
		return midge.Discard(fmt.Errorf("the price of %s: %w", row[0], err))
	}
	_, err = s.db.ExecContext(ctx, `INSERT INTO products (name, cents) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET cents = excluded.cents`, row[0], cents)
	return err
}
