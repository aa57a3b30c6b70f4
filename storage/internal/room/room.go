// Package room remembers whether a storage refuses writes because it is full.
package room

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/midgehq/midge/storage"
)

// tryEvery is how often a storage finds out by a write of its own whether it is full.
const tryEvery = time.Minute

// Room holds whether a storage is full: by the last write that it refused, and by the trials of the
// storage. A new Room has space. It is safe for concurrent use.
type Room struct {
	Of     string // the thing that may be full: "Redis"
	Remedy string // the way to make room: "raise maxmemory"

	full atomic.Bool

	mu    sync.Mutex // guards the fields below, and changes of full
	why   string
	since time.Time // when the first write was refused
	tried time.Time // when a write or a trial last showed whether there is space
}

// Full reports whether the last write was refused.
func (r *Room) Full() bool { return r.full.Load() }

// Wrote notes the result of writes: a storage.ErrFull shows that the storage is full, and a new task of
// applied that it has space. Other errors, and other writes, show nothing.
func (r *Room) Wrote(err error, applied ...storage.Applied) {
	fresh := func(p storage.Placed) bool { return !p.Existing }
	switch {
	case errors.Is(err, storage.ErrFull):
		r.set(r.Of + " is full: " + cause(err))
	case err == nil && r.Full():
		for i := range applied {
			if applied[i].Err == nil && slices.ContainsFunc(applied[i].Inserted, fresh) {
				r.Tried("")
				return
			}
		}
	}
}

// Tried notes the result of a trial: why the storage is full, "" if it is not.
func (r *Room) Tried(why string) {
	if why != "" {
		r.set(why)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.full.Store(false)
	r.why, r.since, r.tried = "", time.Time{}, time.Now()
}

// cause returns the text of the error of the server or the driver, which storages wrap last.
func cause(err error) string {
	for {
		var within error
		switch of := err.(type) { //nolint:errorlint // it unwraps one level at a time
		case interface{ Unwrap() []error }:
			if all := of.Unwrap(); len(all) > 0 {
				within = all[len(all)-1]
			}
		case interface{ Unwrap() error }:
			within = of.Unwrap()
		}
		if within == nil {
			return err.Error()
		}
		err = within
	}
}

func (r *Room) set(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if !r.full.Swap(true) {
		r.since = now
	}
	r.why, r.tried = why, now
}

// Due reports whether a trial is due, and counts as one.
func (r *Room) Due() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.tried) < tryEvery {
		return false
	}
	r.tried = time.Now()
	return true
}

// Missed notes that the trial that Due counted was not carried out, so that another one is due.
func (r *Room) Missed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried = time.Time{}
}

// Tell sets d.Full and d.FullSince. d.Now is the time of the storage.
func (r *Room) Tell(d *storage.Description) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full.Load() {
		d.Full, d.FullSince = r.why+": "+r.Remedy, d.Now.Add(-time.Since(r.since)).Truncate(time.Microsecond)
	}
}
