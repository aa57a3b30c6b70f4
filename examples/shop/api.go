package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/midgehq/midge"
)

// patience is how long a request waits for the bank.
const patience = 3 * time.Second

// routes returns the API of the shop.
func (s *shop) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.home)
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		o := order{Number: rand.Text(), Mail: r.FormValue("mail"), Product: r.FormValue("product")}
		charge, err := s.place(r.Context(), o)
		s.paid(w, r, o.Number, charge, err)
	})
	mux.HandleFunc("POST /orders/{number}/charge", func(w http.ResponseWriter, r *http.Request) {
		o, err := s.find(r.Context(), r.PathValue("number"))
		if err != nil {
			answer(w, 0, nil, err)
			return
		}
		charge, err := s.client.Enqueue(r.Context(), ChargeCard{Order: o.Number}) // or the task that is under way
		s.paid(w, r, o.Number, charge, err)
	})
	mux.HandleFunc("GET /orders/{number}", func(w http.ResponseWriter, r *http.Request) {
		o, err := s.find(r.Context(), r.PathValue("number"))
		answer(w, http.StatusOK, o, err)
	})
	mux.HandleFunc("POST /catalogue", func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<19))
		if err != nil {
			answer(w, 0, nil, err)
			return
		}
		task, err := s.client.Enqueue(r.Context(), ImportCatalogue{CSV: string(text)})
		answer(w, http.StatusAccepted, map[string]any{"task": task.Ref.String()}, err)
	})
	mux.HandleFunc("GET /imports/{id}", func(w http.ResponseWriter, r *http.Request) {
		task, err := s.client.Task(r.Context(), midge.Ref{Queue: "imports", ID: r.PathValue("id")})
		var done imported
		if err == nil {
			err = midge.DecodeProgress(task, &done)
		}
		if errors.Is(err, midge.ErrNoResult) { // the import has not begun: 0 rows
			err = nil
		}
		answer(w, http.StatusOK, map[string]any{"state": task.State, "progress": done}, err)
	})
	return mux
}

// paid waits for the charge of an order, and answers 201 when the card was charged, 402 when it
// was declined, and 202 when the bank has not answered yet.
func (s *shop) paid(w http.ResponseWriter, r *http.Request, number string, charge midge.Task, err error) {
	var receipt string
	if err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		err = s.client.Await(ctx, charge.Ref, &receipt)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		answer(w, http.StatusAccepted, map[string]any{"number": number}, nil)
		return
	}
	answer(w, http.StatusCreated, map[string]any{"number": number, "receipt": receipt}, err)
}

// home prints the sales of the shop and the sizes of its queues.
func (s *shop) home(w http.ResponseWriter, r *http.Request) {
	day := 24 * time.Hour
	orders, cents, err := s.sold(r.Context(), time.Now().Add(-day), time.Now().Add(time.Second))
	if err != nil {
		answer(w, 0, nil, err)
		return
	}
	_, _ = fmt.Fprintf(w, "%d orders were paid within a day: %d.%02d EUR\n\n", orders, cents/100, cents%100)
	queues, err := s.client.Stats(r.Context()) // all of them
	if err != nil {
		_, _ = fmt.Fprintln(w, err)
		return
	}
	for _, q := range queues {
		_, _ = fmt.Fprintf(w, "%-9s %4d waiting %4d running %4d scheduled %4d retrying %4d dead %6d completed\n",
			q.Queue, q.Waiting, q.Pending, q.Scheduled, q.Retry, q.Dead, q.Totals.Completed)
	}
	_, _ = fmt.Fprintln(w, "\n/midge/  /metrics  /healthz  /readyz")
}

// answer writes v, or the error with its HTTP status.
func answer(w http.ResponseWriter, status int, v any, err error) {
	var dead *midge.DeadError
	var invalid *midge.InvalidError
	switch {
	case err == nil:
	case errors.As(err, &dead):
		status = http.StatusPaymentRequired
	case errors.As(err, &invalid):
		status = http.StatusBadRequest
	case errors.Is(err, errUnknown), errors.Is(err, midge.ErrNotFound):
		status = http.StatusNotFound
	default: // a database is unavailable
		status = http.StatusServiceUnavailable
	}
	if err != nil {
		v = map[string]string{"error": err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		return // the client went away
	}
}
