package sqlite

import (
	"encoding/json"
	"fmt"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// admit decides whether a call may happen. If the lane remembers the call, it returns the outcome.
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

func packExtended(x *storage.Extended) []byte {
	b, _ := json.Marshal(x) //nolint:errchkjson // cannot fail: texts and a time of this century
	return b
}
