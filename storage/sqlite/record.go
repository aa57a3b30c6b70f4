package sqlite

import (
	"encoding/binary"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
)

// decode fills a record from what is packed, and gives storage.ErrDamaged for a task that no step has
// written. A task of a newer version is one that this version cannot read either.
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

// packSpec packs the content of a task but its kind, which has a column.
func packSpec(r *row) []byte {
	sp := r.Spec
	sp.Kind = ""
	return record.AppendSpec(nil, &sp, r.rest)
}

// packPast packs what a task went through since it was created.
func packPast(r *row) []byte { return record.AppendPast([]byte{}, &r.Past) }

// packCounts packs the sizes of a queue by state behind their number, then its totals, all as varints.
func packCounts(q *engine.Queue) []byte {
	b := binary.AppendUvarint(make([]byte, 0, 40), uint64(len(q.Sizes)))
	for _, n := range q.Sizes {
		b = binary.AppendUvarint(b, uint64(n))
	}
	for _, n := range totals(&q.Totals) {
		b = binary.AppendUvarint(b, uint64(*n))
	}
	return b
}

// unpackCounts reads sizes and totals; what is missing is 0.
func unpackCounts(b []byte, q *engine.Queue) {
	r := record.Reader{Rest: b}
	if len(b) == 0 {
		return
	}
	for i := range int(min(r.Number(), 1<<10)) {
		if n := int64(r.Number()); i < len(q.Sizes) {
			q.Sizes[i] = n
		}
	}
	for _, n := range totals(&q.Totals) {
		*n = int64(r.Number())
	}
}

// totals lists the totals in the order in which they are kept.
func totals(t *storage.Totals) [8]*int64 {
	return [...]*int64{
		&t.Enqueued, &t.Requeued, &t.Completed, &t.Dead, &t.Cancelled, &t.Deleted, &t.Failed, &t.Crashed,
	}
}
