package redis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// gather reads the outcomes of all parts of a call into applied. If some parts happened and others
// failed, the outcome of the call is unknown: a repeat carries out the parts that did not happen.
func gather(parts []*part, txs []storage.Tx, applied []storage.Applied) error {
	if len(parts) == 0 {
		return nil
	}
	if p := parts[0]; len(parts) == 1 {
		if p.err != nil {
			return p.err
		}
		return p.read(txs, applied)
	}
	errs := make([]error, len(parts))
	for i, p := range parts {
		if errs[i] = p.err; p.err == nil {
			errs[i] = p.read(txs, applied)
		}
	}
	err := gravest(errs)
	if err != nil && slices.Contains(errs, nil) {
		return inPart(err)
	}
	return err
}

// read fills in the Applied of a part's Txs from its outcome, which scripts/apply.lua
// describes.
func (p *part) read(txs []storage.Tx, applied []storage.Applied) error {
	if p.outcome == "" {
		return fmt.Errorf("%w: empty outcome", errReply)
	}
	if err := verdict(p.outcome[0]); err != nil {
		return err
	}
	r := outcome{reader: reader{rest: p.outcome[1:]}}
	letter := r.text(1)
	if letter != "A" && letter != "B" {
		return fmt.Errorf("%w: repeats another call", storage.ErrUnknown)
	}
	if r.version = r.number(7); letter == "B" {
		r.created = moment(r.number(7))
	}
	for _, u := range p.units {
		r.version++
		if strings.HasPrefix(r.rest, "*") { // one letter for all Txs of a run
			r.text(1)
			r.all(r.text(1), u.txs, txs, applied)
			continue
		}
		for _, i := range u.txs {
			r.tx(&txs[i], &applied[i])
		}
	}
	if r.bad {
		return fmt.Errorf("%w: an outcome of other Txs", storage.ErrUnknown)
	}
	return nil
}

// outcome is a reader of one part's outcome.
type outcome struct {
	reader

	version int64     // of the Tx under way
	created time.Time // of the tasks that were made, if versions do not show it
}

// all fills in the outcomes of Txs of one operation each that led to the same state.
func (r *outcome) all(letter string, of []int, txs []storage.Tx, applied []storage.Applied) {
	state := stateOf(first(letter))
	room := make([]storage.Placed, len(of))
	for n, i := range of {
		placed := room[n : n+1 : n+1]
		switch tx := &txs[i]; {
		case len(tx.Settles) == 1:
			applied[i].Settled = placed
			placed[0].Ref = tx.Settles[0].Fence.Ref
		case len(tx.Inserts) == 1:
			applied[i].Inserted = placed
			placed[0].Ref, placed[0].Created = tx.Inserts[0].Ref, r.created
		default: // the outcome is damaged: no run has such a Tx
			r.bad = true
			return
		}
		placed[0].Version, placed[0].State = r.version, state
	}
}

// tx reads the outcome of one Tx.
func (r *outcome) tx(tx *storage.Tx, a *storage.Applied) {
	switch r.text(1) {
	case "K":
		r.applied(tx, a)
	case "R":
		a.Err = r.refusal(tx)
	default:
		r.bad = true
	}
}

// applied reads the results of a Tx that happened, in the order in which part.addTx sent its operations.
func (r *outcome) applied(tx *storage.Tx, a *storage.Applied) {
	room := make([]storage.Placed, len(tx.Settles)+len(tx.Changes)+len(tx.Inserts))
	cut := func(n int) []storage.Placed {
		if n == 0 {
			return nil
		}
		taken := room[:n:n]
		room = room[n:]
		return taken
	}
	a.Settled, a.Changed, a.Inserted = cut(len(tx.Settles)), cut(len(tx.Changes)), cut(len(tx.Inserts))
	for i := range tx.Settles {
		a.Settled[i] = r.placed(tx.Settles[i].Fence.Ref)
	}
	for i := range tx.Changes {
		a.Changed[i] = r.placed(targetOf(&tx.Changes[i]))
	}
	for i := range tx.Inserts {
		a.Inserted[i] = r.placed(tx.Inserts[i].Ref)
		if !a.Inserted[i].Existing {
			a.Inserted[i].Created = r.created
		}
	}
}

// targetOf returns the Ref that a task has after a change.
func targetOf(ch *storage.Change) storage.Ref {
	ref := ch.Ref
	if ch.Queue != "" {
		ref.Queue = ch.Queue
	}
	return ref
}

func (r *outcome) placed(ref storage.Ref) storage.Placed {
	p := storage.Placed{Ref: ref, Version: r.version}
	switch letter := r.text(1); letter {
	case "V":
		p.State = r.state()
		p.Version = r.number(7)
	case "E":
		p.State, p.Existing = r.state(), true
		p.Version = r.number(7)
		p.Ref.ID = r.text(int(r.number(1)))
	case "":
	default:
		p.State = stateOf(letter[0])
	}
	return p
}

func (r *outcome) state() storage.State { return stateOf(byte(r.number(1))) }

// refusal reads the obstacles of a Tx that was refused.
func (r *outcome) refusal(tx *storage.Tx) *storage.DependencyError {
	e := &storage.DependencyError{}
	for n := r.number(2); n > 0 && !r.bad; n-- {
		letter := r.text(1)
		op := opOf(tx, int(r.number(2))-1)
		switch letter {
		case "m":
			e.Missing = append(e.Missing, op.ref)
		case "s":
			e.Stale = append(e.Stale, storage.Stale{Ref: op.ref, Want: op.version, Have: r.number(7)})
		case "l":
			e.Lost = append(e.Lost, op.ref)
		case "b":
			e.Barred = append(e.Barred, storage.Barred{Ref: op.ref, State: r.state()})
		case "c":
			e.Colliding = append(e.Colliding, storage.Collision{Ref: op.ref, Holder: op.target})
		case "u":
			holder := storage.Ref{Queue: op.target.Queue, ID: r.text(int(r.number(1)))}
			e.Colliding = append(e.Colliding, storage.Collision{Ref: op.ref, Holder: holder, Unique: true})
		default:
			r.bad = true
		}
	}
	return e
}

// operation is the operation of a Tx that met an obstacle.
type operation struct {
	ref, target storage.Ref
	version     int64
}

// opOf returns the i-th operation of a Tx, counted from 0 in the order of part.addTx. It returns the zero
// operation if the Tx has no such operation.
func opOf(tx *storage.Tx, i int) operation {
	if i >= 0 && i < len(tx.Deletes) {
		d := &tx.Deletes[i]
		return operation{d.Ref, d.Ref, d.Version}
	}
	i -= len(tx.Deletes)
	if i >= 0 && i < len(tx.Settles) {
		f := &tx.Settles[i].Fence
		return operation{f.Ref, f.Ref, f.Version}
	}
	i -= len(tx.Settles)
	if i >= 0 && i < len(tx.Changes) {
		ch := &tx.Changes[i]
		return operation{ch.Ref, targetOf(ch), ch.Version}
	}
	i -= len(tx.Changes)
	if i >= 0 && i < len(tx.Inserts) {
		ref := tx.Inserts[i].Ref
		return operation{ref, ref, 0}
	}
	i -= len(tx.Inserts)
	if i >= 0 && i < len(tx.Depends) {
		d := &tx.Depends[i]
		return operation{d.Ref, d.Ref, d.Version}
	}
	return operation{}
}
