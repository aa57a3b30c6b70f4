package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// verbOutcome is the verb of an Apply whose outcome is kept. Of an Apply that went as expected (VerbApply)
// the base and the Txs tell the outcome.
const verbOutcome engine.Verb = "o"

// remembered is the last call of a lane.
type remembered struct {
	base    int64
	verb    engine.Verb
	outcome []byte
}

// lanesQuery reads lanes.
func lanesQuery(lanes [][]byte, got map[[16]byte]remembered) query {
	var lane []byte
	var r remembered
	return query{
		text: "SELECT lane, base, verb::text, outcome FROM {schema}.lanes WHERE lane = ANY ($1::bytea[])",
		args: []any{lanes},
		scan: each(func() error {
			kept := r
			kept.outcome = slices.Clone(r.outcome)
			got[[16]byte(lane)] = kept
			return nil
		}, &lane, &r.base, (*string)(&r.verb), &r.outcome),
	}
}

// refused returns the error of a call for the letter that the function admit gave it, nil for a new or a
// repeated call.
func refused(letter string) error {
	switch letter {
	case "v":
		return fmt.Errorf("%w: older than the last call of its lane, or repeats another", storage.ErrUnknown)
	case "x":
		return storage.ErrLaneExpired
	}
	return nil
}

// admit keeps the parts that the server admitted, and answers the others from their lanes. letters has a
// letter for each of the calls.
func (st *step) admit(ctx context.Context, parts, calls []*part, letters string) error {
	if len(calls) != len(letters) {
		return fmt.Errorf("%w: %d letters for %d calls", errReply, len(letters), len(calls))
	}
	letterOf := make(map[*part]string, len(calls))
	for i, p := range calls {
		letterOf[p] = letters[i : i+1]
	}
	var repeated []*part
	var lanes [][]byte
	for _, p := range parts {
		switch letter := letterOf[p]; letter {
		case "", "n":
			st.parts = append(st.parts, p)
			continue
		case "r":
			repeated, lanes = append(repeated, p), append(lanes, p.Identity.Lane.ID[:])
			p.done, p.err = true, nil
		default:
			p.done, p.err = true, refused(letter)
		}
	}
	if len(lanes) == 0 {
		return nil
	}
	got := make(map[[16]byte]remembered)
	if err := st.link.run(ctx, lanesQuery(lanes, got)); err != nil {
		return err
	}
	for _, p := range repeated {
		r := got[p.Identity.Lane.ID]
		switch {
		case st.verb != verbOutcome:
			p.outcome = r.outcome
		case r.verb == engine.VerbApply:
			p.applied = expected(p.txs, r.base)
		default:
			p.applied, p.err = unpackApplied(r.outcome, p.txs)
		}
	}
	return nil
}

// outcome is the kept form of an Applied.
type outcome struct {
	I, C, S []storage.Placed         `json:",omitempty"`
	E       *storage.DependencyError `json:",omitempty"`
}

func packApplied(applied []storage.Applied) []byte {
	all := make([]outcome, len(applied))
	for i, a := range applied {
		all[i] = outcome{I: a.Inserted, C: a.Changed, S: a.Settled}
		all[i].E, _ = a.Err.(*storage.DependencyError) //nolint:errorlint // made here, never wrapped
	}
	b, _ := json.Marshal(all) //nolint:errchkjson // cannot fail: texts and numbers
	return b
}

// unpackApplied reads the outcomes of Txs. It returns errReply where b does not fit them.
func unpackApplied(b []byte, txs []storage.Tx) ([]storage.Applied, error) {
	var all []outcome
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("%w: %w", errReply, err)
	}
	if len(all) != len(txs) {
		return nil, errReply
	}
	applied := make([]storage.Applied, len(all))
	for i, o := range all {
		tx := &txs[i]
		switch {
		case o.E != nil:
			applied[i].Err = o.E
		case len(o.I) != len(tx.Inserts) || len(o.C) != len(tx.Changes) || len(o.S) != len(tx.Settles):
			return nil, errReply
		default:
			applied[i] = storage.Applied{Inserted: o.I, Changed: o.C, Settled: o.S}
		}
	}
	return applied, nil
}

// remembering keeps the outcomes of parts that have an identity; it is false where none has.
func remembering(parts []*part) (query, bool) {
	var lanes, outcomes [][]byte
	for _, p := range parts {
		if !p.Identity.IsZero() {
			lanes, outcomes = append(lanes, p.Identity.Lane.ID[:]), append(outcomes, packApplied(p.applied))
		}
	}
	return query{text: "SELECT {schema}.remember($1, $2)", args: []any{lanes, outcomes}}, len(lanes) > 0
}

// sweepLanes deletes lanes whose life is over: calls on them would be refused anyway.
func (s *Storage) sweepLanes(ctx context.Context) error {
	return s.askAside(ctx, query{
		text: "SELECT {schema}.sweep({schema}.come({schema}.told()) - $1)",
		args: []any{(storage.LaneLife + time.Minute).Microseconds()},
	})
}
