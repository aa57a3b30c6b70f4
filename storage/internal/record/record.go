// Package record packs the parts of a task that are seldom asked for, for storages that keep them as
// bytes in a row: its record, its past, its lease and its history. It also checks a task that was read:
// bytes from a storage are input too, and give storage.ErrDamaged where no step has written them.
//
// A record is what is said of a task once, at its insert, and seldom changed:
//
//	flags (1), most retries and crash limit (varints), kind behind its length, encoding
//	behind its length or as one small byte, then what its flags say: keep (twice its time, and one
//	more until it is read), timeout, unique key behind its length and its window (varints),
//	headers behind their length (pairs, each part behind its length), cursor behind its length
//	(JSON), parts behind their length, and the payload to the end. The registry of the engine has
//	the numbers.
//
// Parts are for newer versions: each a number, its length and its content. This version knows
// none, and writes those of a record anew as they were. What an older process must not pass over
// in a record is said by a flag of the task that it does not know ([Newer]).
package record

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// AppendSpec packs the content of an insert behind b. A storage that keeps the kind in a column of its own
// leaves it empty here. The rest are the parts that only newer versions know.
func AppendSpec(b []byte, sp *engine.Spec, rest []byte) []byte {
	begin := len(b)
	b = slices.Grow(b, 32+len(sp.Kind)+len(sp.Encoding)+len(sp.Payload)+len(rest))
	b = append(b, 0) // the flags
	b = binary.AppendUvarint(b, uint64(sp.MaxRetries))
	b = binary.AppendUvarint(b, uint64(sp.CrashLimit))
	b = AppendText(b, sp.Kind)
	b = appendEncoding(b, sp.Encoding)
	flags := engine.IsRecord
	keep := 2 * uint64(sp.Keep.For.Microseconds())
	if sp.Keep.UntilRead {
		keep++
	}
	if keep > 0 {
		flags |= engine.RecordKeep
		b = binary.AppendUvarint(b, keep)
	}
	if timeout := sp.Timeout.Microseconds(); timeout > 0 {
		flags |= engine.RecordTimeout
		b = binary.AppendUvarint(b, uint64(timeout))
	}
	switch sp.Unique.Mode {
	case storage.UniqueLife:
		flags |= engine.RecordUniqueLife
		b = AppendText(b, sp.Unique.Key)
	case storage.UniqueWindow:
		flags |= engine.RecordUniqueWindow
		b = AppendText(b, sp.Unique.Key)
		b = binary.AppendUvarint(b, uint64(sp.Unique.For.Microseconds()))
	}
	if len(sp.Headers) > 0 {
		flags |= engine.RecordHeaders
		b = AppendText(b, packHeaders(sp.Headers))
	}
	if sp.Cursor != nil {
		flags |= engine.RecordCursor
		b = AppendText(b, packCursor(sp.Cursor))
	}
	if len(rest) > 0 {
		flags |= engine.RecordParts
		b = AppendText(b, rest)
	}
	b[begin] = flags
	return append(b, sp.Payload...)
}

func appendEncoding(b []byte, name string) []byte {
	if i := slices.Index(engine.Encodings[:], name); i >= 0 {
		return append(b, byte(i))
	}
	b = binary.AppendUvarint(b, uint64(len(engine.Encodings)+len(name)))
	return append(b, name...)
}

func packHeaders(headers map[string]string) []byte {
	var b []byte
	for name, value := range headers {
		b = AppendText(AppendText(b, name), value)
	}
	return b
}

func packCursor(c *storage.Cursor) []byte {
	b, _ := json.Marshal(engine.CopyCursor(c)) //nolint:errchkjson // cannot fail: checked times, and texts
	return b
}

// Spec unpacks a record. The payload and the rest share its memory, and the kind that of like where they are
// the same.
func Spec(b []byte, like string) (sp engine.Spec, rest []byte, err error) {
	if len(b) == 0 || b[0]&engine.IsRecord == 0 {
		return sp, nil, storage.ErrDamaged
	}
	flags, r := b[0], Reader{Rest: b[1:]}
	sp.MaxRetries, sp.CrashLimit = int(r.Number()), int(r.Number())
	if kind := r.Bytes(); string(kind) == like {
		sp.Kind = like
	} else {
		sp.Kind = string(kind)
	}
	if n := r.Number(); n < uint64(len(engine.Encodings)) {
		sp.Encoding = engine.Encodings[n]
	} else {
		sp.Encoding = string(r.Take(n - uint64(len(engine.Encodings))))
	}
	if flags&engine.RecordKeep != 0 {
		keep := r.Number()
		sp.Keep = storage.Keep{For: time.Duration(keep/2) * time.Microsecond, UntilRead: keep%2 > 0}
	}
	if flags&engine.RecordTimeout != 0 {
		sp.Timeout = r.span()
	}
	switch {
	case flags&engine.RecordUniqueLife != 0:
		sp.Unique = storage.Unique{Mode: storage.UniqueLife, Key: string(r.Bytes())}
	case flags&engine.RecordUniqueWindow != 0:
		sp.Unique = storage.Unique{Mode: storage.UniqueWindow, Key: string(r.Bytes())}
		sp.Unique.For = r.span()
	}
	if flags&engine.RecordHeaders != 0 {
		sp.Headers = r.headers()
	}
	if flags&engine.RecordCursor != 0 {
		sp.Cursor = new(storage.Cursor)
		r.JSON(sp.Cursor)
	}
	if flags&engine.RecordParts != 0 {
		rest = r.Bytes()
	}
	if r.Bad {
		return sp, nil, storage.ErrDamaged
	}
	sp.Payload = r.Rest
	return sp, rest, nil
}

// AppendPast packs a past behind b, but when it began, which each storage keeps for itself: nothing where
// nothing has happened, else the retries and the crashes and, where there is more, the snoozes, when the
// first of them was, and the reason to the end.
func AppendPast(b []byte, p *engine.Past) []byte {
	if *p == (engine.Past{Created: p.Created}) {
		return b
	}
	b = binary.AppendUvarint(b, uint64(p.Retries))
	b = binary.AppendUvarint(b, uint64(p.Crashes))
	if p.Snoozes > 0 || p.Reason != "" {
		b = binary.AppendUvarint(b, uint64(p.Snoozes))
		b = binary.AppendUvarint(b, uint64(p.SnoozedSince))
	}
	return append(b, p.Reason...)
}

// Past unpacks a past that began at a moment.
func Past(b []byte, created int64) (engine.Past, error) {
	p, r := engine.Past{Created: created}, Reader{Rest: b}
	if len(r.Rest) > 0 {
		p.Retries, p.Crashes = int(r.Number()), int(r.Number())
	}
	if len(r.Rest) > 0 {
		p.Snoozes, p.SnoozedSince = int(r.Number()), int64(r.Number())
		p.Reason = string(r.Rest)
	}
	const most = 1 << 31
	for _, n := range [...]int{p.Retries, p.Crashes, p.Snoozes} {
		r.Bad = r.Bad || n < 0 || n > most
	}
	if r.Bad || !isMoment(p.Created) || !isMoment(p.SnoozedSince) ||
		p.Reason != storage.CleanText(p.Reason, storage.MaxReason) {
		return p, storage.ErrDamaged
	}
	return p, nil
}

// Lease packs the lease of a task: its token and its runner, empty where it is not pending.
func Lease(r *engine.Record) []byte {
	if !r.State.IsPending() {
		return []byte{}
	}
	return append(r.Token[:len(r.Token):len(r.Token)], r.Runner...)
}

// SetLease fills in the lease of a task whose state is known, and reports whether it is one.
func SetLease(r *engine.Record, lease []byte) bool {
	if !r.State.IsPending() {
		return true
	}
	if len(lease) < len(r.Token) {
		return false
	}
	r.Token, r.Runner = storage.Token(lease), string(lease[len(r.Token):])
	return true
}

// PackAttempts packs a history, as JSON.
func PackAttempts(attempts []storage.Attempt) []byte {
	b, _ := json.Marshal(attempts) //nolint:errchkjson // cannot fail: times of this century, and texts
	return b
}

// Attempts unpacks a history; nothing is an empty one.
func Attempts(b []byte) (attempts []storage.Attempt, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	if err = json.Unmarshal(b, &attempts); err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrDamaged, err)
	}
	return attempts, nil
}
