package postgres

import (
	"encoding/json"
	"testing"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
)

// FuzzRow reads rows of any content, as every step does, and carries out operations on the rows that can be
// read.
func FuzzRow(f *testing.F) {
	for i, sp := range []engine.Spec{
		{Kind: "k", Encoding: "json", CrashLimit: 3},
		{Kind: "k", Encoding: "a", CrashLimit: 3, Unique: storage.Unique{Key: "u", Mode: storage.UniqueLife}},
		{Kind: "k", Encoding: "ab", CrashLimit: 3, Cursor: &storage.Cursor{Declaration: `{"spec":"every 1h"}`}},
		{Kind: "k", Encoding: "raw", CrashLimit: 3, Keep: storage.Keep{UntilRead: true}},
	} {
		r := row{Record: engine.Record{Past: engine.Past{Created: 1, Retries: i}}}
		f.Add([]byte("id"), record.AppendSpec(nil, &sp, nil), packPast(&r), make([]byte, i*len(r.Token)), []byte("[]"), int64(1), int64(1), int64(i),
			int16(i+1), int16(i), int16(i), i > 2)
	}
	f.Add([]byte{255}, []byte("garbage"), []byte{1}, []byte{0}, []byte("null"), int64(-1), int64(-1), int64(-1),
		int16(-1), int16(-1), int16(-1), true)
	f.Fuzz(func(t *testing.T, id, spec, past, lease, attempts []byte, sort, version, at int64,
		state, flags, priority int16, ended bool,
	) {
		rec := raw{
			found: true, held: true, ended: ended, sort: sort, version: version, at: at, state: state, flags: flags,
			priority: priority, lease: lease, past: past, record: spec, attempts: attempts,
		}
		ref := storage.Ref{Queue: "q", ID: unpackID(id)}
		r := rec.row(ref, 1)
		_ = r.task()
		if r.State == engine.Damaged {
			return
		}
		if _, err := json.Marshal(r.task()); err != nil {
			t.Error(err)
		}
		w := newWork(storage.Limits{}.WithDefaults(), 1, 1, func(string) int32 { return 1 })
		w.load(r)
		w.keys[key{"q", r.Unique.Key}] = nil
		txs := []storage.Tx{
			{Changes: []storage.Change{{Ref: ref, Now: true}}},
			{Changes: []storage.Change{{Ref: ref, Cancel: true}}},
			{Changes: []storage.Change{{Ref: ref, Requeue: true}}},
		}
		applied := engine.Answers(txs)
		for i := range txs {
			w.step.Apply(&txs[i], &applied[i])
		}
		if r.State.IsPending() {
			w.step.Recover([]*engine.Record{&r.Record})
		}
		w.save(false)
	})
}

// FuzzNote reads notifications from strangers.
func FuzzNote(f *testing.F) {
	f.Add("sender w 1,2")
	f.Add("joined c -1,,x")
	f.Add("  ")
	f.Fuzz(func(_ *testing.T, payload string) {
		w := &wake{late: func([]int32) {}, name: func(int32) string { return unnamed }, sender: "me"}
		w.note("", payload)
	})
}
