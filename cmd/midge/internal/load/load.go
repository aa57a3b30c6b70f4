// Package load loads the rows of a file as tasks, each row once.
//
// A task of the kind [storage.LoadKind], the marker, records how far a file has been loaded: the rows, the
// length of the text before the next row, and its SHA-256. It stands in the queue of the tasks, so that the
// queue's storage, or slot of a Redis Cluster, can change both in one step. It is scheduled for a moment
// that never comes. A step inserts at most 750 rows and changes the marker at the version that the loader
// has read. So of two loaders that make the same step one is refused: it reads the marker again, and goes
// on from there. A lost reply is detected in the same way, and a step that arrives late is
// refused.
//
// A loader reads the text before the marker's place again, and compares its digest, so that it never goes
// on in another file. It keeps nothing else from one run to the next.
//
// The id of a task is made of the name of the load and the number of its row. If a marker was deleted and
// the file is loaded again, rows whose tasks are still there are left as they are.
//
// The rejected rows stand in their file at a place that the marker records too. A loader writes the
// rejected rows of a step at that place before it makes the step. If the step does not happen, the next
// loader writes the same rows at the same place: none is lost, and none stands there twice once the load is
// finished. If something else stands at that place, the rows go to the end of the file.
package load

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// Patience is how long a loader waits for a storage that does not answer.
const Patience = time.Minute

// Loader loads one file.
type Loader struct {
	// Session should have Patience. The loader reads its Storage too.
	Session *storage.Session
	Source  Source
	Rows    Rows
	// Name is the name of the load in its queue.
	Name string
	// HighWater bounds the tasks that wait in the queue: the loader waits while there are more. 0 is no bound.
	HighWater int64
	// Reject is the file for wrong rows. Without it the load stops at a wrong row.
	Reject *os.File
	// First is called with the first task that is about to be enqueued, if it is not nil.
	First func(*storage.Insert)
	// Progress is called after each step, if it is not nil.
	Progress func(Report)

	steps  int64 // the most rows of a step, 0 for the default
	limits storage.Limits
	marker marker
	room   int64 // how many tasks may be inserted before the size of the queue is read again
	report Report
}

// Report is the progress of a load.
type Report struct {
	// Before is how many rows had been read before this run, and Rows how many have been read by now. Rejected
	// is how many of the latter were rejected, and RejectedBefore how many of the former.
	Before, Rows, Rejected, RejectedBefore int64
	// Loaded is how many tasks this run has made, and Existing how many were there already.
	Loaded, Existing int64
	// Done is how many bytes of the file have been read, and Of its size in bytes, 0 if that is not known.
	Done, Of int64
	// Waiting is set while the loader waits because of HighWater.
	Waiting bool
	// Finished is set if the file was loaded to its end.
	Finished bool
}

// OtherFileError means that another file was loaded under the name.
type OtherFileError struct {
	Name, Queue string
	// Loaded is the file that was loaded, and Given the file that was to be loaded now.
	Loaded, Given string
	Bytes         int64
}

// Error names both files.
func (e *OtherFileError) Error() string {
	return fmt.Sprintf("%s is another file than %s, which was loaded as %s into the queue %s: "+
		"their first %d bytes are not the same", e.Given, e.Loaded, e.Name, e.Queue, e.Bytes)
}

// Check returns a *[storage.InvalidError] if the load cannot be made.
func (l *Loader) Check() error {
	if err := CheckName(l.Name); err != nil {
		return err
	}
	if l.HighWater < 0 {
		return storage.Invalid("--high-water", l.HighWater, "1 or more")
	}
	return l.Rows.check()
}

// Run loads the file, from the place at which an earlier run has stopped. It returns a *[RowError] for a
// wrong row, an *[OtherFileError], a *[MarkerError] or the error of the storage. After an error the report
// shows how far the load is, and the next run goes on from there.
func (l *Loader) Run(ctx context.Context) (Report, error) {
	if err := l.Check(); err != nil {
		return l.report, err
	}
	described, err := l.Session.Storage().Describe(ctx)
	if err != nil {
		return l.report, err
	}
	l.limits = described.Limits
	for first := true; ; first = false {
		err := l.pass(ctx, first)
		if !errors.Is(err, errBack) {
			return l.report, err
		}
	}
}

// errBack means that the load has to go on at a place that the reader does not come to.
var errBack = errors.New("go back")

// pass reads the file from its beginning and loads the rows behind the marker.
func (l *Loader) pass(ctx context.Context, first bool) error {
	ctx, stop := context.WithCancel(ctx)
	var reads sync.WaitGroup
	defer reads.Wait()
	defer stop()
	text, err := l.Source.open(ctx)
	if err != nil {
		return fmt.Errorf("open %s: %w", l.Source.Name, err)
	}
	defer func() { _ = text.file.Close() }() // it was only read
	r := &reader{
		name: l.Name, file: l.Source.Name, rejects: l.Reject != nil, text: text, hash: newHash(),
		scanner: newScanner(text, l.Rows.Format, l.Source.Pipe), parser: newParser(l.Rows, l.limits),
		most: cmp.Or(l.steps, l.Rows.perStep()),
	}
	if err := r.begin(); err != nil {
		return err
	}
	if first {
		if err := l.begin(ctx, text.size); err != nil {
			return err
		}
		l.report.Before, l.report.RejectedBefore = l.marker.Rows, l.marker.Rejected
		l.report.Finished = l.marker.Finished
	}
	l.told()
	m := l.marker
	err = r.skip(ctx, position{bytes: m.Bytes, rows: m.Rows, rejected: m.Rejected}, m.SHA256)
	if errors.Is(err, errOther) {
		return &OtherFileError{l.Name, m.ref.Queue, m.File, l.Source.Name, m.Bytes}
	}
	if err != nil {
		return err
	}
	steps := make(chan *step, 1)
	reads.Go(func() { r.steps(ctx, steps) }) // it ends with the file, or with ctx
	for s := range steps {
		if err := l.load(ctx, r, s); err != nil {
			return err
		}
		if s.err != nil {
			return s.err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// load makes a step, unless another loader has made it.
func (l *Loader) load(ctx context.Context, r *reader, s *step) error {
	for {
		switch m := &l.marker; {
		case s.to.rows < m.Rows && !s.last:
			return nil
		case s.to.rows == m.Rows && s.to.bytes == m.Bytes && s.sum == m.SHA256 && (m.Finished || !s.last):
			l.report.Finished = m.Finished
			return nil
		case s.from.rows != m.Rows, m.Bytes > 0 && s.before != m.SHA256:
			return errBack
		}
		done, err := l.apply(ctx, r, s)
		if done || err != nil {
			return err
		}
	}
}

// apply makes a step. done is false if the marker has changed since it was read.
func (l *Loader) apply(ctx context.Context, r *reader, s *step) (done bool, err error) {
	if l.First != nil && len(s.inserts) > 0 {
		l.First(&s.inserts[0])
		l.First = nil
	}
	if err := l.await(ctx, int64(len(s.inserts))); err != nil {
		return false, err
	}
	to := l.marker.Load
	if to.Reject, err = l.reject(r, s); err != nil {
		return false, err
	}
	to.Rows, to.Rejected, to.Bytes, to.SHA256 = s.to.rows, s.to.rejected, s.to.bytes, s.sum
	to.File, to.Done, to.Of, to.Finished = filepath.Base(l.Source.Name), s.done, r.text.size, s.last
	ch, err := l.marker.change(to)
	if err != nil {
		return false, err
	}
	applied, err := l.Session.ApplyOne(ctx, storage.Tx{Inserts: s.inserts, Changes: []storage.Change{ch}})
	var refused *storage.DependencyError
	switch was := l.marker.version; {
	case errors.As(err, &refused) && len(refused.Stale)+len(refused.Missing)+len(refused.Barred) > 0:
		return false, l.reread(ctx)
	case errors.As(err, &refused) && len(refused.Colliding) > 0:
		return false, &TakenError{refused.Colliding[0].Holder}
	case errors.Is(err, storage.ErrUnknown):
		if l.reread(ctx) != nil || l.marker.version == was {
			return false, err
		}
		return false, nil
	case err != nil:
		return false, err
	}
	l.marker.changed(to, applied.Changed[0])
	for _, p := range applied.Inserted {
		if p.Existing {
			l.report.Existing++
		} else {
			l.report.Loaded++
		}
	}
	l.told()
	l.report.Finished = s.last
	return true, nil
}

// told reports the place of the marker.
func (l *Loader) told() {
	m := &l.marker
	l.report.Rows, l.report.Rejected, l.report.Done, l.report.Of = m.Rows, m.Rejected, m.Done, m.Of
	if l.Progress != nil {
		l.Progress(l.report)
	}
}

// TakenError means that a task with other content has the id of a row.
type TakenError struct{ Ref storage.Ref }

// Error names the task.
func (e *TakenError) Error() string {
	return fmt.Sprintf("the task %s is there already, with another kind or other parameters", e.Ref)
}

// await waits while too many tasks wait in the queue.
func (l *Loader) await(ctx context.Context, rows int64) error {
	for l.HighWater > 0 && l.room < rows {
		var waiting int64
		err := l.patiently(ctx, func() error {
			stats, err := l.Session.Storage().Stats(ctx, l.Rows.Task.Queue)
			for _, s := range stats {
				waiting = s.Waiting
			}
			return err
		})
		if err != nil {
			return err
		}
		if waiting <= l.HighWater {
			l.room = max(l.HighWater-waiting, rows)
			break
		}
		l.report.Waiting = true
		l.told()
		if !sleep.For(ctx, readEach) {
			return context.Cause(ctx)
		}
	}
	l.report.Waiting = false
	l.room -= rows
	return nil
}

// rejectPlace returns the place for the first rejected row: the end of the file that takes them. It is nil
// without such a file.
func (l *Loader) rejectPlace() (*payload.Reject, error) {
	if l.Reject == nil {
		return nil, nil //nolint:nilnil // there is no such file
	}
	size, err := l.Reject.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("find the end of %s: %w", l.Reject.Name(), err)
	}
	return &payload.Reject{At: size}, nil
}

// reject writes the rejected rows of a step to their place, and returns what the marker records then.
func (l *Loader) reject(r *reader, s *step) (*payload.Reject, error) {
	at := l.marker.Reject
	if len(s.rejects) == 0 {
		return at, nil
	}
	if at == nil { // another loader has made the marker anew
		var err error
		if at, err = l.rejectPlace(); err != nil {
			return nil, err
		}
	}
	size, err := l.Reject.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("find the end of %s: %w", l.Reject.Name(), err)
	}
	if size < at.At+at.Bytes {
		return nil, storage.Invalid("--reject", l.Reject.Name(),
			"the file that has the first %d bytes of rejected rows; this one has %d", at.At+at.Bytes, size)
	}
	rows := withHeader(at, r.header, s.rejects)
	there := make([]byte, min(int64(len(rows)), size-at.At-at.Bytes))
	if _, err := l.Reject.ReadAt(there, at.At+at.Bytes); err != nil {
		return nil, fmt.Errorf("read rejected rows: %w", err)
	}
	if !bytes.HasPrefix(rows, there) { // they are not of this load: leave them
		at = &payload.Reject{At: size}
		rows = withHeader(at, r.header, s.rejects)
	}
	if _, err := l.Reject.WriteAt(rows, at.At+at.Bytes); err != nil {
		return nil, fmt.Errorf("write rejected rows: %w", err)
	}
	if err := l.Reject.Sync(); err != nil {
		return nil, fmt.Errorf("write rejected rows: %w", err)
	}
	return &payload.Reject{At: at.At, Bytes: at.Bytes + int64(len(rows))}, nil
}

// withHeader returns the text for rejected rows. The header stands before the first of them.
func withHeader(at *payload.Reject, header, rows []byte) []byte {
	if at.Bytes > 0 {
		return rows
	}
	return slices.Concat(header, rows)
}
