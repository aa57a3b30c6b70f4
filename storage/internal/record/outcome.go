package record

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// states holds each state at its number in an outcome. New states come last.
var states = storage.States()

// The first byte of a Placed in an outcome: the number of its state, from 1, and these flags.
const (
	placedCreated  = 1 << 5 // behind the version stands when the task was created
	placedExisting = 1 << 6
	placedOther    = 1 << 7 // its ref is not the ref that the operation names
)

// PackApplied packs the outcome of Txs for a lane. A Tx that was refused is 1 and its error as JSON; any
// other is 0 and its answers, in the order of eachPlaced. An answer has its version as the difference to the
// version that comes after that of the answer before.
func PackApplied(txs []storage.Tx, applied []storage.Applied) []byte {
	b, last := make([]byte, 0, 16), int64(0)
	for i := range applied {
		a := &applied[i]
		if a.Err != nil {
			refusal, _ := json.Marshal(a.Err) //nolint:errchkjson // cannot fail: texts and numbers
			b = AppendText(append(b, 1), refusal)
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
			b = binary.AppendVarint(append(b, head), p.Version-last-1)
			last = p.Version
			if !p.Created.IsZero() {
				b = binary.AppendUvarint(b, uint64(engine.Moment(p.Created)))
			}
			if p.Ref != ref {
				b = AppendText(AppendText(b, p.Ref.Queue), p.Ref.ID)
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

// Applied reads the outcome of the same Txs. It returns an ErrUnknown if b does not fit
// them.
func Applied(b []byte, txs []storage.Tx) ([]storage.Applied, error) {
	applied := engine.Answers(txs)
	r, last := Reader{Rest: b}, int64(0)
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
			last += 1 + r.Delta()
			p.Ref, p.Version = ref, last
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
