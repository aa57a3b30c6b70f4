// Package record packs the parts of a task that are seldom asked for, for storages that keep them as
// bytes in a row: its record, its past, its lease and its history. It also checks a task that was read:
// bytes from a storage are input too, and lead to storage.ErrDamaged if no step can have written them.
//
// A record is the content of a task's insert, which seldom changes:
//
//	flags (1), most retries and crash limit (varints), kind after its length, encoding
//	after its length or as one small byte, then the fields that the flags name: keep (twice its
//	time, plus one for UntilRead), timeout, unique key after its length and its window (varints),
//	headers after their length (pairs, each part after its length), cursor after its length
//	(JSON), parts after their length, and the payload to the end. The registry of the engine has
//	the numbers.
//
// Each part has a number, its length and its content. Part 1 is the partition, part 2 the cost as a varint,
// 0 for none. All other parts are for newer versions: this version writes them again as it read them. If an
// older process must not ignore a part, the newer version also sets a flag of the task that the older does
// not know ([Newer]).
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

// AppendSpec appends the packed content of an insert to b. A storage that keeps the kind in a column of its
// own leaves it empty here. rest holds the parts that only newer versions know.
func AppendSpec(b []byte, sp *engine.Spec, rest []byte) []byte {
	begin, headers := len(b), packHeaders(sp.Headers)
	b = slices.Grow(b, 32+len(sp.Kind)+len(sp.Encoding)+len(headers)+len(sp.Payload)+len(rest))
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
		b = AppendText(b, headers)
	}
	if sp.Cursor != nil {
		flags |= engine.RecordCursor
		b = AppendText(b, packCursor(sp.Cursor))
	}
	if sp.Partition != "" {
		rest = append(AppendText(binary.AppendUvarint(nil, partPartition), sp.Partition), rest...)
	}
	if sp.Cost != 0 {
		cost := binary.AppendUvarint(nil, uint64(sp.Cost.N()))
		rest = append(AppendText(binary.AppendUvarint(nil, partCost), string(cost)), rest...)
	}
	if len(rest) > 0 {
		flags |= engine.RecordParts
		b = AppendText(b, rest)
	}
	b[begin] = flags
	return append(b, sp.Payload...)
}

// The numbers of the parts that hold the partition and the cost.
const (
	partPartition = 1
	partCost      = 2
)

// setParts takes partition and cost from the parts of a record, and returns the other parts. It reports false
// for bytes that are no parts.
func setParts(sp *engine.Spec, parts []byte) (rest []byte, ok bool) {
	for r := (Reader{Rest: parts}); len(r.Rest) > 0; {
		before := r.Rest
		number, content := r.Number(), r.Bytes()
		switch {
		case r.Bad, number == partPartition && (sp.Partition != "" || len(content) == 0),
			number == partCost && sp.Cost != 0:
			return nil, false
		case number == partPartition:
			sp.Partition = string(content)
		case number == partCost:
			c := Reader{Rest: content}
			n := c.Number()
			if c.Bad || len(c.Rest) > 0 || n > storage.MaxCost {
				return nil, false
			}
			if sp.Cost = storage.Cost(n); n == 0 {
				sp.Cost = storage.NoCost
			}
		default:
			rest = append(rest, before[:len(before)-len(r.Rest)]...)
		}
	}
	return rest, true
}

func appendEncoding(b []byte, name string) []byte {
	if i := slices.Index(engine.Encodings[:], name); i >= 0 {
		return append(b, byte(i))
	}
	b = binary.AppendUvarint(b, uint64(len(engine.Encodings)+len(name)))
	return append(b, name...)
}

func packHeaders(headers map[string]string) []byte {
	if len(headers) == 0 {
		return nil
	}
	n := 0
	for name, value := range headers {
		n += 2*binary.MaxVarintLen32 + len(name) + len(value)
	}
	b := make([]byte, 0, n)
	for name, value := range headers {
		b = AppendText(AppendText(b, name), value)
	}
	return b
}

func packCursor(c *storage.Cursor) []byte {
	b, _ := json.Marshal(engine.CopyCursor(c)) //nolint:errchkjson // cannot fail: checked times, and texts
	return b
}

// Spec unpacks a record, or returns storage.ErrDamaged. The payload and rest share the memory of b. If the
// kind equals like, it shares the memory of like.
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
		sp.Timeout = span(&r)
	}
	switch {
	case flags&engine.RecordUniqueLife != 0:
		sp.Unique = storage.Unique{Mode: storage.UniqueLife, Key: string(r.Bytes())}
	case flags&engine.RecordUniqueWindow != 0:
		sp.Unique = storage.Unique{Mode: storage.UniqueWindow, Key: string(r.Bytes())}
		sp.Unique.For = span(&r)
	}
	if flags&engine.RecordHeaders != 0 {
		sp.Headers = headersOf(&r)
	}
	if flags&engine.RecordCursor != 0 {
		sp.Cursor = new(storage.Cursor)
		r.JSON(sp.Cursor)
	}
	sound := true
	if flags&engine.RecordParts != 0 {
		rest, sound = setParts(&sp, r.Bytes())
	}
	if r.Bad || !sound {
		return sp, nil, storage.ErrDamaged
	}
	sp.Payload = r.Rest
	return sp, rest, nil
}

// AppendPast appends a packed past to b, without Created, which each storage keeps by itself. It appends
// nothing if nothing has happened. Otherwise it appends the retries and the crashes and, if there are
// snoozes or a reason, the snoozes, the time of the first, and the reason to the end.
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

// Past unpacks a past whose task was created at a moment, or returns storage.ErrDamaged.
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
		r.Bad = r.Bad || n < 0 || int64(n) > most
	}
	if r.Bad || !isMoment(p.Created) || !isMoment(p.SnoozedSince) ||
		p.Reason != storage.CleanText(p.Reason, storage.MaxReason+storage.MaxName) { // a run names its runner
		return p, storage.ErrDamaged
	}
	return p, nil
}

// Lease packs the lease of a task: its token and its runner. It is empty if the task is not pending.
func Lease(r *engine.Record) []byte {
	if !r.State.IsPending() {
		return []byte{}
	}
	return append(r.Token[:len(r.Token):len(r.Token)], r.Runner...)
}

// SetLease unpacks a lease into r, whose state is known, and reports whether the bytes are sound. A task that
// is not pending has no lease to unpack.
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

// PackAttempts packs a history, as JSON. It leaves out the moments of claims that follow from the versions.
func PackAttempts(attempts []storage.Attempt) []byte {
	attempts = slices.Clone(attempts)
	for i := range attempts {
		if a := &attempts[i]; a.Claimed.UnixMicro() == a.Version {
			a.Claimed = time.Time{}
		}
	}
	b, _ := json.Marshal(attempts) //nolint:errchkjson // cannot fail: times of this century, and texts
	return b
}

// Attempts unpacks a history, or returns storage.ErrDamaged. No bytes are an empty history.
func Attempts(b []byte) (attempts []storage.Attempt, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	if err = json.Unmarshal(b, &attempts); err != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrDamaged, err)
	}
	for i := range attempts {
		if a := &attempts[i]; a.Claimed.IsZero() {
			a.Claimed = engine.Time(a.Version)
		}
	}
	return attempts, nil
}
