package sqlite

import (
	"encoding/json"
	"slices"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
)

// decode fills a record from its packed columns. It returns storage.ErrDamaged for a task that no
// step has written, and record.ErrNewer for a task of a newer version, which this version cannot read
// either.
func decode(r *engine.Record, lease, past, spec []byte) (rest []byte, err error) {
	if r.Flags&record.Newer != 0 {
		return nil, record.ErrNewer
	}
	if r.Past, err = record.Past(past, r.Created); err != nil {
		return nil, err
	}
	kind := r.Kind
	if r.Spec, rest, err = record.Spec(spec, ""); err != nil {
		return nil, err
	}
	r.Kind = kind
	if err := record.Check(r); err != nil {
		return nil, err
	}
	if !record.SetLease(r, lease) {
		return nil, storage.ErrDamaged
	}
	return rest, nil
}

// payloadOf returns the payload in the packed content of a task, whose memory it shares.
func payloadOf(spec []byte) ([]byte, error) {
	sp, _, err := record.Spec(spec, "")
	return sp.Payload, err
}

// packSpec packs the content of a task without its kind, which has a column.
func packSpec(r *row) []byte {
	sp := r.Spec
	sp.Kind = ""
	return record.AppendSpec(nil, &sp, r.rest)
}

// packPast packs the past of a task since it was created.
func packPast(r *row) []byte { return record.AppendPast([]byte{}, &r.Past) }

// counts are the sizes of a queue by state, its totals, and numbers of its partitions.
type counts struct {
	Sizes  [engine.States]int64
	Totals storage.Totals
	// Resting counts the partitions that are not ready, and Turn is the place of the tasks without a partition
	// in the ring.
	Resting int64 `json:",omitzero"`
	Turn    int64 `json:",omitzero"`
}

func packCounts(q *queue) string {
	c := counts{q.Sizes, q.Totals, q.resting, q.Turn}
	b, _ := json.Marshal(c) //nolint:errchkjson // cannot fail: numbers
	return string(b)
}

// unpackCounts reads counts; a missing number is 0. It reports false for sizes that no step has
// written.
func unpackCounts(text string, q *queue) bool {
	var c counts
	err := json.Unmarshal([]byte(text), &c)
	q.Sizes, q.Totals, q.resting, q.Turn = c.Sizes, c.Totals, c.Resting, c.Turn
	return err == nil && slices.Min(q.Sizes[:]) >= 0
}
