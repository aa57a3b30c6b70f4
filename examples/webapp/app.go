package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// Welcome is the job that a request enqueues.
type Welcome struct {
	To string
}

// Options names the queue mail and keeps a completed task for a while, so that its
// state can still be read.
func (Welcome) Options() midge.Options {
	return midge.Options{Queue: "mail", Timeout: 10 * time.Second, Keep: midge.Keep{For: time.Minute}}
}

// mailer sends mail. It stands for a dependency that a job cannot carry as a parameter.
type mailer struct {
	log       *zap.Logger
	handshake time.Duration
}

func (m *mailer) send(ctx context.Context, job Welcome) error {
	m.log.Info("mail: connecting, to welcome " + job.To)
	t := time.NewTimer(m.handshake)
	defer t.Stop()
	select {
	case <-t.C:
		m.log.Info("mail: dear " + job.To + ", welcome")
		return nil
	case <-ctx.Done(): // out of time, cancelled, or the grace period is over
		return context.Cause(ctx)
	}
}

// accepted is the answer to a request for a welcome.
type accepted struct {
	Task     string `json:"task"`
	Existing bool   `json:"existing"`
}

// handler returns the handler of the application.
func handler(client *midge.Client) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /welcome", func(w http.ResponseWriter, r *http.Request) {
		to := r.FormValue("to")
		if to == "" {
			http.Error(w, "to: whom?", http.StatusBadRequest)
			return
		}
		// A user who clicks twice is welcomed once.
		task, err := client.Enqueue(r.Context(), Welcome{To: to}, midge.Unique{For: 2 * time.Second})
		answer(w, http.StatusAccepted, accepted{Task: task.Ref.String(), Existing: task.Existing}, err)
	})
	mux.HandleFunc("GET /tasks/{queue}/{id}", func(w http.ResponseWriter, r *http.Request) {
		task, err := client.Task(r.Context(), storage.Ref{Queue: r.PathValue("queue"), ID: r.PathValue("id")})
		answer(w, http.StatusOK, map[string]any{"state": task.State, "retries": task.Retries}, err)
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, r *http.Request) {
		stats, err := client.Queue("mail").Stats(r.Context())
		answer(w, http.StatusOK, map[string]any{
			"waiting": stats.Waiting, "running": stats.Pending, "retry": stats.Retry, "dead": stats.Dead,
		}, err)
	})
	return mux
}

// answer writes v, or the error with its HTTP status.
func answer(w http.ResponseWriter, status int, v any, err error) {
	if err != nil {
		var invalid *midge.InvalidError
		switch {
		case errors.As(err, &invalid):
			status = http.StatusBadRequest
		case errors.Is(err, midge.ErrNotFound):
			status = http.StatusNotFound
		default: // the storage is full or unavailable
			status = http.StatusServiceUnavailable
		}
		v = map[string]string{"error": err.Error()}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		return // the client went away
	}
}
