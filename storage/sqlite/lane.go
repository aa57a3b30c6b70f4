package sqlite

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
)

// admit decides whether a call may happen. Where the lane remembers the call, it returns the outcome.
func (w *work) admit(c storage.Call, verb engine.Verb) (outcome []byte, repeated bool, err error) {
	if c.IsZero() {
		return nil, false, nil
	}
	var was engine.LastCall
	var last *engine.LastCall
	var seq int64
	var bad bool
	if w.one("SELECT opened, seq, verb, outcome FROM {p}lanes WHERE lane = ?", []any{c.Lane.ID[:]},
		number{to: &was.Opened, bad: &bad}, number{to: &seq, bad: &bad}, &was.Verb, &outcome) {
		was.Seq, last = uint64(seq), &was
	}
	if bad {
		return nil, false, fmt.Errorf("what is remembered of the last call is damaged: %w", storage.ErrUnknown)
	}
	if repeated, err = w.step.Admit(c, verb, last); !repeated {
		outcome = nil
	}
	return outcome, repeated, err
}

// remember keeps the outcome of a call.
func (w *work) remember(c storage.Call, verb engine.Verb, outcome []byte) {
	if !c.IsZero() {
		if outcome == nil {
			outcome = []byte{}
		}
		w.exec("INSERT INTO {p}lanes (lane, opened, seq, verb, outcome) VALUES (?, ?, ?, ?, ?) "+
			"ON CONFLICT DO UPDATE SET seq = excluded.seq, verb = excluded.verb, outcome = excluded.outcome",
			c.Lane.ID[:], engine.Moment(c.Lane.Opened), int64(c.Seq), string(verb), outcome)
	}
}

// isIdle reports whether a call repeats a claim that took nothing and changed nothing. Lanes do not
// remember such claims: a runner without work would write with each of its claims. This process does.
func (s *Storage) isIdle(c storage.Call) bool {
	was, _ := s.idle.Load(c.Lane.ID)
	last, some := was.(storage.Call)
	return some && !c.IsZero() && last.Seq == c.Seq
}

// forgetIdle forgets claims on lanes whose life is over.
func (s *Storage) forgetIdle(come int64) {
	s.idle.Range(func(key, was any) bool {
		last, _ := was.(storage.Call)
		if engine.Moment(last.Lane.Opened) < come-storage.LaneLife.Microseconds() {
			s.idle.Delete(key)
		}
		return true
	})
}

// states gives the states their numbers in an outcome; new states come last.
var states = storage.States()

// The first byte of a Placed in an outcome: the number of its state, from 1, and these flags.
const (
	placedCreated  = 1 << 5 // behind the version stands when the task was created
	placedExisting = 1 << 6
	placedOther    = 1 << 7 // its ref is not the one that the operation names
)

// packApplied packs the outcome of Txs. A Tx that was refused is 1 and its error as JSON; any other
// is 0 and its answers, in the order of eachPlaced.
func packApplied(txs []storage.Tx, applied []storage.Applied) []byte {
	var b []byte
	for i := range applied {
		a := &applied[i]
		if a.Err != nil {
			refusal, _ := json.Marshal(a.Err) //nolint:errchkjson // cannot fail: texts and numbers
			b = record.AppendText(append(b, 1), refusal)
			continue
		}
		b = append(b, 0)
		eachPlaced(&txs[i], a, func(ref storage.Ref, p *storage.Placed) {
			head := byte(0)
			for n, state := range states {
				if p.State == state {
					head = byte(n + 1)
				}
			}
			if p.Existing {
				head |= placedExisting
			}
			if p.Ref != ref {
				head |= placedOther
			}
			if !p.Created.IsZero() {
				head |= placedCreated
			}
			b = binary.AppendUvarint(append(b, head), uint64(p.Version))
			if !p.Created.IsZero() {
				b = binary.AppendUvarint(b, uint64(engine.Moment(p.Created)))
			}
			if p.Ref != ref {
				b = record.AppendText(record.AppendText(b, p.Ref.Queue), p.Ref.ID)
			}
		})
	}
	return b
}

// eachPlaced calls f for each answer of a Tx, with the ref that its operation names.
func eachPlaced(tx *storage.Tx, a *storage.Applied, f func(storage.Ref, *storage.Placed)) {
	for i := range a.Inserted {
		f(tx.Inserts[i].Ref, &a.Inserted[i])
	}
	for i := range a.Changed {
		f(storage.Ref{Queue: engine.TargetQueue(&tx.Changes[i]), ID: tx.Changes[i].Ref.ID}, &a.Changed[i])
	}
	for i := range a.Settled {
		f(tx.Settles[i].Fence.Ref, &a.Settled[i])
	}
}

// unpackApplied reads the outcome of the same Txs. It returns an ErrUnknown where b does not fit
// them.
func unpackApplied(b []byte, txs []storage.Tx) ([]storage.Applied, error) {
	applied := engine.Answers(txs)
	r := record.Reader{Rest: b}
	for i := range txs {
		refused := r.Number()
		if r.Bad = r.Bad || refused > 1; refused == 1 {
			dep := new(storage.DependencyError)
			r.JSON(dep)
			applied[i] = storage.Applied{Err: dep}
			continue
		}
		eachPlaced(&txs[i], &applied[i], func(ref storage.Ref, p *storage.Placed) {
			head := r.Take(1)
			if r.Bad {
				return
			}
			p.Ref, p.Version = ref, int64(r.Number())
			if n := int(head[0] & 15); n > 0 && n <= len(states) {
				p.State = states[n-1]
			}
			p.Existing = head[0]&placedExisting != 0
			if head[0]&placedCreated != 0 {
				p.Created = engine.Time(int64(r.Number()))
			}
			if head[0]&placedOther != 0 {
				p.Ref = storage.Ref{Queue: string(r.Bytes()), ID: string(r.Bytes())}
			}
		})
	}
	if r.Bad || len(r.Rest) > 0 {
		return nil, fmt.Errorf("%w: the outcome that is remembered is of other transactions", storage.ErrUnknown)
	}
	return applied, nil
}

func packExtended(x *storage.Extended) []byte {
	b, _ := json.Marshal(x) //nolint:errchkjson // cannot fail: texts and a time of this century
	return b
}
