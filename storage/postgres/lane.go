package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
	"github.com/midgehq/midge/storage/internal/wakeup"
)

// verbOutcome is the verb of an Apply whose outcome is kept. Of an Apply that went as expected (VerbApply)
// the base and the Txs determine the outcome.
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

// refused returns the error of a call for the letter that the function admit returned for it, nil for a
// new or a repeated call.
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
		if st.verb == verbOutcome {
			st.wakeAgain(ctx, p)
		}
		r, some := got[p.Identity.Lane.ID]
		p.done, p.err = true, nil
		switch {
		case !some:
			p.err = fmt.Errorf("%w: no lane for a repeated call", errReply)
		case st.verb != verbOutcome:
			p.outcome = r.outcome
		case r.verb == engine.VerbApply:
			p.applied = expected(p.txs, r.base)
		default:
			p.applied, p.err = record.Applied(r.outcome, p.txs)
		}
	}
	return nil
}

// wakeAgain wakes those whom a repeated call of Apply concerns: its wake-ups may have been lost with its
// reply.
func (st *step) wakeAgain(ctx context.Context, p *part) {
	names := queuesOfParts([]*part{p})
	queues := make([]int32, len(names))
	for i, name := range names {
		queues[i] = st.queues[name]
	}
	event := wakeup.News
	if p.asks() {
		event = wakeup.Alert
	}
	st.store.notes.rung(ctx, queues, nil, event)
}

// remembering keeps the outcomes of parts that have an identity; it reports false if none has one.
func remembering(parts []*part) (query, bool) {
	var lanes, outcomes [][]byte
	for _, p := range parts {
		if !p.Identity.IsZero() {
			lanes = append(lanes, p.Identity.Lane.ID[:])
			outcomes = append(outcomes, record.PackApplied(p.txs, p.applied))
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
