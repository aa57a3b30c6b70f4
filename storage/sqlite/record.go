package sqlite

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// What is seldom asked for of a task is packed. Numbers are varints, texts stand behind their length,
// and the registry of the engine has the numbers of flags and encodings.
//
//	record: flags (one byte), most retries, crash limit, encoding; then what the flags say: keep (twice
//	        its time, and one more until it is read), timeout, unique key and its window, headers
//	        (JSON), cursor (JSON), parts that only newer versions know; the payload to the end
//	past:   empty, or crashes, when it ended, snoozes, when the first of them was, reason to the end
//	counts: the sizes of a queue by state behind their number, then its totals

func appendText(b []byte, text string) []byte {
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

func appendJSON(b []byte, v any) []byte {
	text, _ := json.Marshal(v) //nolint:errchkjson // cannot fail: texts, numbers, times of this century
	return appendText(b, string(text))
}

// packSpec packs the content of an insert. The rest are parts that only newer versions know.
func packSpec(sp *engine.Spec, rest []byte) []byte {
	b := make([]byte, 1, 24+len(sp.Payload)+len(rest))
	flags := engine.IsRecord
	b = binary.AppendUvarint(b, uint64(sp.MaxRetries))
	b = binary.AppendUvarint(b, uint64(sp.CrashLimit))
	if i := slices.Index(engine.Encodings[:], sp.Encoding); i >= 0 {
		b = append(b, byte(i))
	} else {
		b = binary.AppendUvarint(b, uint64(len(engine.Encodings)+len(sp.Encoding)))
		b = append(b, sp.Encoding...)
	}
	keep := 2 * uint64(sp.Keep.For.Microseconds())
	if sp.Keep.UntilRead {
		keep++
	}
	if keep > 0 {
		flags |= engine.RecordKeep
		b = binary.AppendUvarint(b, keep)
	}
	if sp.Timeout > 0 {
		flags |= engine.RecordTimeout
		b = binary.AppendUvarint(b, uint64(sp.Timeout.Microseconds()))
	}
	switch sp.Unique.Mode {
	case storage.UniqueLife:
		flags |= engine.RecordUniqueLife
		b = appendText(b, sp.Unique.Key)
	case storage.UniqueWindow:
		flags |= engine.RecordUniqueWindow
		b = binary.AppendUvarint(appendText(b, sp.Unique.Key), uint64(sp.Unique.For.Microseconds()))
	}
	if len(sp.Headers) > 0 {
		flags |= engine.RecordHeaders
		b = appendJSON(b, sp.Headers)
	}
	if sp.Cursor != nil {
		flags |= engine.RecordCursor
		b = appendJSON(b, engine.CopyCursor(sp.Cursor))
	}
	if len(rest) > 0 {
		flags |= engine.RecordParts
		b = appendText(b, string(rest))
	}
	b[0] = flags
	return append(b, sp.Payload...)
}

// reader reads what is packed from its beginning.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.bad = true
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) bytes() []byte { return r.take(r.number()) }

func (r *reader) span() time.Duration { return time.Duration(r.number()) * time.Microsecond }

func (r *reader) json(v any) {
	if json.Unmarshal(r.bytes(), v) != nil {
		r.bad = true
	}
}

// unpackSpec unpacks a record into sp. The payload shares its memory.
func unpackSpec(b []byte, sp *engine.Spec) (rest []byte, err error) {
	if len(b) == 0 || b[0]&engine.IsRecord == 0 {
		return nil, storage.ErrDamaged
	}
	flags, r := b[0], reader{b: b[1:]}
	sp.MaxRetries, sp.CrashLimit = int(r.number()), int(r.number())
	if n := r.number(); n < uint64(len(engine.Encodings)) {
		sp.Encoding = engine.Encodings[n]
	} else {
		sp.Encoding = string(r.take(n - uint64(len(engine.Encodings))))
	}
	if flags&engine.RecordKeep != 0 {
		keep := r.number()
		sp.Keep = storage.Keep{For: time.Duration(keep/2) * time.Microsecond, UntilRead: keep%2 > 0}
	}
	if flags&engine.RecordTimeout != 0 {
		sp.Timeout = r.span()
	}
	switch {
	case flags&engine.RecordUniqueLife != 0:
		sp.Unique = storage.Unique{Mode: storage.UniqueLife, Key: string(r.bytes())}
	case flags&engine.RecordUniqueWindow != 0:
		sp.Unique = storage.Unique{Mode: storage.UniqueWindow, Key: string(r.bytes())}
		sp.Unique.For = r.span()
	}
	if flags&engine.RecordHeaders != 0 {
		r.json(&sp.Headers)
	}
	if flags&engine.RecordCursor != 0 {
		sp.Cursor = new(storage.Cursor)
		r.json(sp.Cursor)
	}
	if flags&engine.RecordParts != 0 {
		rest = r.bytes()
	}
	if r.bad {
		return nil, storage.ErrDamaged
	}
	sp.Payload = r.b
	return rest, nil
}

// packPast packs what a task went through.
func packPast(r *engine.Record) []byte {
	p := &r.Past
	if p.Crashes == 0 && p.Snoozes == 0 && p.Reason == "" && r.Ended == 0 {
		return []byte{}
	}
	b := binary.AppendUvarint(nil, uint64(p.Crashes))
	b = binary.AppendUvarint(b, uint64(r.Ended))
	b = binary.AppendUvarint(b, uint64(p.Snoozes))
	b = binary.AppendUvarint(b, uint64(p.SnoozedSince))
	return append(b, p.Reason...)
}

// unpackPast unpacks a past into r, which knows its retries and when it was created.
func unpackPast(b []byte, r *engine.Record) error {
	p := &r.Past
	if len(b) > 0 {
		past := reader{b: b}
		p.Crashes, r.Ended = int(past.number()), int64(past.number())
		p.Snoozes, p.SnoozedSince = int(past.number()), int64(past.number())
		p.Reason = string(past.b)
		if past.bad || p.Reason != storage.CleanText(p.Reason, storage.MaxReason) {
			return storage.ErrDamaged
		}
	}
	const most = 1 << 31
	for _, n := range []int{p.Retries, p.Crashes, p.Snoozes} {
		if n < 0 || n > most {
			return storage.ErrDamaged
		}
	}
	if !isMoment(p.Created) || !isMoment(r.Ended) || !isMoment(p.SnoozedSince) {
		return storage.ErrDamaged
	}
	return nil
}

// lastMoment is the last microsecond of the year 9999: JSON has no later time.
const lastMoment = 253402300799_999999

// isMoment reports whether a time that was read is one that can be told.
func isMoment(us int64) bool { return us >= 0 && us <= lastMoment }

// newer are the flags that this version does not know. A task with one of them is left to processes of
// a newer version.
const newer = ^(engine.Special | engine.Started | engine.StartOnly | engine.IsSuspect | engine.HasSide)

// decode fills a record from what is packed, and gives storage.ErrDamaged for a task that no step has
// written.
func decode(r *engine.Record, lease, past, record []byte) (rest []byte, err error) {
	if err = unpackPast(past, r); err != nil {
		return nil, err
	}
	if rest, err = unpackSpec(record, &r.Spec); err != nil {
		return nil, err
	}
	sp := &r.Spec
	in := storage.Insert{
		Ref: r.Ref, Kind: sp.Kind, Encoding: sp.Encoding, Payload: sp.Payload, Headers: sp.Headers,
		Priority: int(r.Priority), MaxRetries: sp.MaxRetries, CrashLimit: sp.CrashLimit, Timeout: sp.Timeout,
		Keep: sp.Keep, Unique: sp.Unique, Cursor: sp.Cursor,
	}
	// The limit at its insert may have been higher than that of today.
	if err := storage.CheckInsert(storage.Limits{MaxPayload: storage.MaxPayloadCap}, &in); err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrDamaged, err)
	}
	timed := r.State > engine.Suspect && r.State <= engine.Dead && r.State != engine.Cursor
	switch {
	case r.State.Public() == "", r.Flags&newer != 0, (r.State == engine.Cursor) != (sp.Cursor != nil),
		r.Version <= 0 || !isMoment(r.Version), timed && !isMoment(r.Sort),
		r.State == engine.Declined && !isMoment(r.Turn),
		r.State.IsPending() && len(lease) < len(r.Token):
		return nil, storage.ErrDamaged
	case r.State.IsPending():
		r.Token, r.Runner = storage.Token(lease), string(lease[len(r.Token):])
	}
	return rest, nil
}

// packCounts packs the sizes and totals of a queue.
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
	r := reader{b: b}
	if len(b) == 0 {
		return
	}
	for i := range int(min(r.number(), 1<<10)) {
		if n := int64(r.number()); i < len(q.Sizes) {
			q.Sizes[i] = n
		}
	}
	for _, n := range totals(&q.Totals) {
		*n = int64(r.number())
	}
}

// totals lists the totals in the order in which they are kept.
func totals(t *storage.Totals) [8]*int64 {
	return [...]*int64{
		&t.Enqueued, &t.Requeued, &t.Completed, &t.Dead, &t.Cancelled, &t.Deleted, &t.Failed, &t.Crashed,
	}
}
