//go:build unix

package faulttest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"github.com/midgehq/midge/storage"
)

// The kinds of events that the processes record.
const (
	enqueueBegun   = "enqueue"         // before the call
	enqueueDone    = "enqueue.done"    // acknowledged
	enqueueRefused = "enqueue.refused" // definitely not done
	enqueueUnknown = "enqueue.unknown"
	claimBegun     = "claim"    // before a call for tasks; N is the number asked for
	claimed        = "claimed"  // one per task
	extended       = "extended" // one per lease
	extendLost     = "extend.lost"
	settleBegun    = "settle"      // before the call
	settleDone     = "settle.done" // accepted
	settleLost     = "settle.lost" // refused: the lease is lost
	settleUnknown  = "settle.unknown"
	runStart       = "run.start"
	runEnd         = "run.end"
	ctxDone        = "ctx.done" // the job's context ended while it ran
	stepDone       = "step"     // a step of a job, with its error
	workerReady    = "ready"
	runnerStopped  = "runner.stopped" // Run has returned
	workerStopped  = "stopped"
	starved        = "starved" // the process had no processor for starvedAfter, since From
	frozen         = "frozen"  // by the test; Step names the worker
	resumed        = "resumed"
	outageBegun    = "outage" // the storage, or a part of it, is unavailable
	outageOver     = "outage.over"
)

// event is one line of a record.
type event struct {
	What   string      `json:"what"`
	At     time.Time   `json:"at"`
	Worker string      `json:"worker"`
	Pid    int         `json:"pid"`
	Ref    storage.Ref `json:"ref,omitzero"`
	// Fence is the version of the claim, or the version that an enqueue returned.
	Fence int64 `json:"fence,omitempty"`
	// From is when the call was sent, For the duration of the lease that it granted.
	From time.Time     `json:"from,omitzero"`
	For  time.Duration `json:"for,omitempty"`
	N    int           `json:"n,omitempty"`
	// Ahead is true if a task was claimed without being started.
	Ahead   bool            `json:"ahead,omitempty"`
	Outcome storage.Outcome `json:"outcome,omitempty"`
	State   storage.State   `json:"state,omitempty"`
	Retries int             `json:"retries,omitempty"`
	Crashes int             `json:"crashes,omitempty"`
	// Claimed is the storage's moment of a claim.
	Claimed time.Time `json:"at_storage,omitzero"`
	// Begun is when the runner last checked, before the job started, that the job may start.
	Begun time.Time `json:"begun,omitzero"`
	// Step is the step that a job took, Tick the scheduled moment of a periodic task.
	Step string `json:"step,omitempty"`
	Tick string `json:"tick,omitempty"`
	Err  string `json:"err,omitempty"`
}

// checkedAt returns when the runner last checked that the job may start, or the time of the
// event if that is unknown.
func (e *event) checkedAt() time.Time {
	if e.Begun.IsZero() {
		return e.At
	}
	return e.Begun
}

// recorder appends a process's events to its file. A nil recorder records nothing.
type recorder struct {
	worker string
	file   *os.File
}

func newRecorder(worker, path string) (*recorder, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &recorder{worker: worker, file: file}, nil
}

// record appends an event to the file. The write has been made when it returns, so the
// death of this process cannot lose the event.
func (r *recorder) record(e event) {
	if r == nil {
		return
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	e.Worker, e.Pid = r.worker, os.Getpid()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err) // a run without its record proves nothing
	}
}

func (r *recorder) close() error { return r.file.Close() }

// text returns an error's text, or "" for nil.
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// record is the file of one process, as far as it has been read. It is not safe for concurrent
// use.
type record struct {
	path string
	file *os.File // nil until the process has made it
	rest []byte   // an unfinished line
}

// read returns the events that the process has recorded since the last call. It leaves an
// unfinished line for the next call.
func (r *record) read() (news history, err error) {
	if r.file == nil {
		if r.file, err = os.Open(r.path); err != nil {
			r.file = nil
			if errors.Is(err, os.ErrNotExist) {
				err = nil
			}
			return nil, err
		}
	}
	more, err := io.ReadAll(r.file)
	if err != nil {
		return nil, err
	}
	r.rest = append(r.rest, more...)
	for {
		line, rest, ok := bytes.Cut(r.rest, []byte("\n"))
		if !ok {
			return news, nil
		}
		e := &event{}
		if err := json.Unmarshal(line, e); err != nil {
			return nil, err
		}
		news = append(news, e)
		r.rest = rest
	}
}

// close closes the file. read must not be called afterwards.
func (r *record) close() {
	if r.file != nil {
		_ = r.file.Close()
	}
}
