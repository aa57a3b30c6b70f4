package load

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/unicode/norm"

	"github.com/midgehq/midge/internal/bulk"
	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/internal/sleep"
	"github.com/midgehq/midge/storage"
)

// mostName bounds the name of a load, so that the ids of its tasks are valid.
const mostName = 100

// CheckName returns a *[storage.InvalidError] unless name can be the name of a load.
func CheckName(name string) error {
	if err := storage.CheckName("--name", name); err != nil {
		return err
	}
	if len(name) > mostName {
		return storage.Invalid("--name", name, "at most %d characters", mostName)
	}
	return nil
}

// NameOf makes the name of a load from the name of its file, without the folder. It is the name of the file
// if that is a valid name of a load. Otherwise it has the valid letters of the name, and a digest of the
// whole name, so that files with different names have different loads.
func NameOf(path string) string {
	base := norm.NFC.String(filepath.Base(path)) // macOS has two spellings of a letter with an accent
	if CheckName(base) == nil {
		return base
	}
	sum := sha256.Sum256([]byte(base))
	digest := hex.EncodeToString(sum[:digestBytes])
	name := strings.Map(func(r rune) rune {
		if storage.CheckName("", "a"+string(r)) != nil {
			return '-'
		}
		return r
	}, base)
	name = strings.TrimLeft(name, "_.-:")
	return strings.TrimLeft(name[:min(len(name), mostName-2*digestBytes-1)]+"-"+digest, "-")
}

// digestBytes is the length of the digest in the name of a load.
const digestBytes = 6

// MarkerRef returns the ref of the marker of a load.
func MarkerRef(queue, name string) storage.Ref {
	return storage.Ref{Queue: queue, ID: name + markerEnd}
}

// NameOfMarker returns the name of the load that a marker records.
func NameOfMarker(ref storage.Ref) string { return strings.TrimSuffix(ref.ID, markerEnd) }

// markerEnd is the end of the id of a marker.
const markerEnd = ".load"

// rowID returns the id of the task of a row. No marker has such an id.
func rowID(name string, row int64) string {
	number := strconv.FormatInt(row, 10)
	return name + "." + "0000000000"[min(len(number), 10):] + number
}

// marker is the record of a load as it was last read or written.
type marker struct {
	payload.Load

	ref     storage.Ref
	version int64
	state   storage.State
}

// markerOf reads a marker.
func markerOf(t storage.Task) (m marker, err error) {
	m = marker{ref: t.Ref, version: t.Version, state: t.State}
	if t.Kind != storage.LoadKind {
		return m, &MarkerError{Ref: t.Ref, Is: "another task"}
	}
	var ok bool
	if m.Load, ok = payload.LoadOf(t); !ok || m.Kind == "" || m.Format == "" {
		return m, &MarkerError{Ref: t.Ref, Is: "not readable"}
	}
	return m, nil
}

// insert returns the insert of the marker. A cancel by hand leaves it there, so that the load can go on.
func (m *marker) insert() (storage.Insert, error) {
	text, err := json.Marshal(m.Load)
	return storage.Insert{
		Ref: m.ref, Kind: storage.LoadKind, Encoding: codec.JSON, Payload: text, At: payload.Never,
		CrashLimit: bulk.DefaultCrashLimit, Keep: storage.Keep{For: storage.MaxDelay},
	}, err
}

// change returns the change of the marker to another record. It brings the marker back to its place if
// somebody has run it now, or cancelled it.
func (m *marker) change(to payload.Load) (storage.Change, error) {
	text, err := json.Marshal(to)
	ch := storage.Change{Ref: m.ref, Version: m.version, Encoding: codec.JSON, Payload: text}
	if m.state != storage.Scheduled {
		ch.At, ch.Requeue = payload.Never, m.state.Ended()
	}
	return ch, err
}

// changed remembers what a change has done.
func (m *marker) changed(to payload.Load, placed storage.Placed) {
	m.Load, m.version, m.state = to, placed.Version, placed.State
}

// MarkerError is the error of a load that cannot go on because of its marker.
type MarkerError struct {
	Ref storage.Ref
	// Is names the state of the marker: deleted, cancelled, not readable, or another task.
	Is string
}

// Error names the marker.
func (e *MarkerError) Error() string {
	return fmt.Sprintf("the task %s, which records how far the load is, is %s", e.Ref, e.Is)
}

// readEach is the pause between two reads of a storage that does not answer, or of a marker that a runner
// has claimed.
const readEach = time.Second

// patiently calls read until it reaches the storage, for Patience at most.
func (l *Loader) patiently(ctx context.Context, read func() error) error {
	for spent := time.Duration(0); ; spent += readEach {
		err := read()
		away := errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrUnknown)
		if !away || spent >= Patience || !sleep.For(ctx, readEach) {
			return err
		}
	}
}

// read reads the marker. The error is an ErrNotFound if there is none. A runner that claims the marker
// declines it; read waits until it has.
func (l *Loader) read(ctx context.Context) (m marker, err error) {
	for {
		var t storage.Task
		err = l.patiently(ctx, func() (err error) {
			t, err = l.Session.Storage().Task(ctx, MarkerRef(l.Rows.Task.Queue, l.Name))
			return err
		})
		if err != nil {
			return m, err
		}
		if t.State != storage.Pending || t.Kind != storage.LoadKind {
			return markerOf(t)
		}
		if !sleep.For(ctx, readEach) {
			return m, context.Cause(ctx)
		}
	}
}

// reread reads the marker in the middle of the load. Somebody who has cancelled or deleted it stops the
// load.
func (l *Loader) reread(ctx context.Context) error {
	m, err := l.read(ctx)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return &MarkerError{MarkerRef(l.Rows.Task.Queue, l.Name), "deleted"}
	case err != nil:
		return err
	case m.state.Ended():
		return &MarkerError{m.ref, string(m.state)}
	}
	l.marker = m
	l.told()
	return l.fits()
}

// begin reads the marker, or inserts it, and brings it back if it was cancelled.
func (l *Loader) begin(ctx context.Context, size int64) error {
	for {
		m, err := l.read(ctx)
		var tx storage.Tx
		switch {
		case errors.Is(err, storage.ErrNotFound):
			m, tx, err = l.fresh(size)
		case err == nil:
			l.marker = m
			m, tx, err = l.again()
		}
		if err != nil || tx.Ops() == 0 {
			return err
		}
		applied, err := l.Session.ApplyOne(ctx, tx)
		if errors.As(err, new(*storage.DependencyError)) {
			continue // another loader was faster
		}
		if err != nil {
			return err
		}
		m.changed(m.Load, append(applied.Inserted, applied.Changed...)[0])
		l.marker = m
		return nil
	}
}

// fresh makes the marker of a load that was not begun, and the step that inserts it.
func (l *Loader) fresh(size int64) (m marker, tx storage.Tx, err error) {
	m = marker{ref: MarkerRef(l.Rows.Task.Queue, l.Name), state: storage.Scheduled, Load: payload.Load{
		Of: size, File: filepath.Base(l.Source.Name), Format: string(l.Rows.Format), Kind: l.Rows.Task.Kind,
	}}
	if m.Reject, err = l.rejectPlace(); err != nil {
		return m, tx, err
	}
	in, err := m.insert()
	return m, storage.Tx{Inserts: []storage.Insert{in}}, err
}

// again returns the marker of a load that was begun, and the step that brings it back to its place and
// notes the place of the rejected rows. The step is empty if there is nothing to do.
func (l *Loader) again() (m marker, tx storage.Tx, err error) {
	m = l.marker
	if err := l.fits(); err != nil {
		return m, tx, err
	}
	if m.Reject == nil {
		if m.Reject, err = l.rejectPlace(); err != nil {
			return m, tx, err
		}
	}
	if m.state == storage.Scheduled && m.Reject == l.marker.Reject {
		return m, tx, nil
	}
	ch, err := m.change(m.Load)
	return m, storage.Tx{Changes: []storage.Change{ch}}, err
}

// fits returns a *[storage.InvalidError] if the load was begun with another kind or format.
func (l *Loader) fits() error {
	switch m := &l.marker; {
	case m.Kind != l.Rows.Task.Kind:
		return storage.Invalid("--kind", l.Rows.Task.Kind, "%s, with which the load %s was begun", m.Kind, l.Name)
	case m.Format != string(l.Rows.Format):
		return storage.Invalid("--format", string(l.Rows.Format), "%s, with which the load %s was begun", m.Format,
			l.Name)
	}
	return nil
}

// Forget deletes the marker of a load. The error is an ErrNotFound if there is none.
func Forget(ctx context.Context, session *storage.Session, queue, name string) (payload.Load, error) {
	ref := MarkerRef(queue, name)
	t, err := session.Storage().Task(ctx, ref)
	if err != nil {
		return payload.Load{}, err
	}
	if t.Kind != storage.LoadKind {
		return payload.Load{}, &MarkerError{Ref: ref, Is: "another task"}
	}
	_, err = session.ApplyOne(ctx, storage.Tx{Deletes: []storage.Delete{{Ref: ref, Version: t.Version}}})
	l, _ := payload.LoadOf(t)
	return l, err
}
