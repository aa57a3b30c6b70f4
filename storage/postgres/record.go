package postgres

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/internal/engine"
)

// A record is what is said of a task once, at its insert, and seldom changed:
//
//	flags (1), most retries and crash limit (varints), kind behind its length, encoding
//	behind its length or as one small byte, then what its flags say: keep (twice its time, and one
//	more until it is read), timeout, unique key behind its length and its window (varints),
//	headers behind their length, cursor behind its length (JSON), parts behind their length,
//	and the payload to the end. The registry of the engine has the numbers.
//
// Parts are for newer versions: each a number, its length and its content. This version knows
// none, and writes those of a record anew as they were. What an older client must not pass over
// in a record is said by a flag of the task that it does not know.

// errNewer is a task that this version leaves to clients of a newer one.
var errNewer = errors.New("a newer version of midge wrote this task, and can read it")

// packSpec writes a record behind b. The rest are parts that only newer versions know.
func packSpec(b []byte, sp *engine.Spec, rest []byte) []byte {
	begin := len(b)
	b = slices.Grow(b, 32+len(sp.Kind)+len(sp.Encoding)+len(sp.Payload))
	b = append(b, 0) // the flags
	b = binary.AppendUvarint(b, uint64(sp.MaxRetries))
	b = binary.AppendUvarint(b, uint64(sp.CrashLimit))
	b = appendText(b, sp.Kind)
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
		b = appendText(b, sp.Unique.Key)
	case storage.UniqueWindow:
		flags |= engine.RecordUniqueWindow
		b = appendText(b, sp.Unique.Key)
		b = binary.AppendUvarint(b, uint64(sp.Unique.For.Microseconds()))
	}
	if len(sp.Headers) > 0 {
		flags |= engine.RecordHeaders
		b = appendText(b, string(packHeaders(sp.Headers)))
	}
	if sp.Cursor != nil {
		flags |= engine.RecordCursor
		b = appendText(b, string(packCursor(sp.Cursor)))
	}
	if len(rest) > 0 {
		flags |= engine.RecordParts
		b = appendText(b, string(rest))
	}
	b[begin] = flags
	return append(b, sp.Payload...)
}

func appendEncoding(b []byte, name string) []byte {
	for i, encoding := range engine.Encodings {
		if name == encoding {
			return append(b, byte(i))
		}
	}
	b = binary.AppendUvarint(b, uint64(len(engine.Encodings)+len(name)))
	return append(b, name...)
}

func appendText(b []byte, text string) []byte {
	b = binary.AppendUvarint(b, uint64(len(text)))
	return append(b, text...)
}

// packHeaders writes headers as pairs behind their lengths.
func packHeaders(headers map[string]string) []byte {
	var b []byte
	for name, value := range headers {
		b = appendText(appendText(b, name), value)
	}
	return b
}

// packCursor writes a cursor.
func packCursor(c *storage.Cursor) []byte {
	b, _ := json.Marshal(engine.CopyCursor(c)) //nolint:errchkjson // cannot fail: checked times, and texts
	return b
}

// reader reads a record from its beginning.
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

func (r *reader) bytes() []byte { return r.take(r.number()) }

func (r *reader) encoding() string {
	n := r.number()
	if n < uint64(len(engine.Encodings)) {
		return engine.Encodings[n]
	}
	return string(r.take(n - uint64(len(engine.Encodings))))
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

// unpack reads a record. The payload and the rest share its memory, and the kind that of like
// where they are the same.
func unpack(b []byte, like string) (sp engine.Spec, rest []byte, err error) {
	if len(b) == 0 || b[0]&engine.IsRecord == 0 {
		return sp, nil, storage.ErrDamaged
	}
	flags := b[0]
	r := reader{b: b[1:]}
	sp.MaxRetries, sp.CrashLimit = int(r.number()), int(r.number())
	if kind := r.bytes(); string(kind) == like {
		sp.Kind = like
	} else {
		sp.Kind = string(kind)
	}
	sp.Encoding = r.encoding()
	if flags&engine.RecordKeep != 0 {
		keep := r.number()
		sp.Keep.For = time.Duration(keep/2) * time.Microsecond
		sp.Keep.UntilRead = keep%2 > 0
	}
	if flags&engine.RecordTimeout != 0 {
		sp.Timeout = time.Duration(r.number()) * time.Microsecond
	}
	switch {
	case flags&engine.RecordUniqueLife != 0:
		sp.Unique = storage.Unique{Mode: storage.UniqueLife, Key: string(r.bytes())}
	case flags&engine.RecordUniqueWindow != 0:
		sp.Unique = storage.Unique{Mode: storage.UniqueWindow, Key: string(r.bytes())}
		sp.Unique.For = time.Duration(r.number()) * time.Microsecond
	}
	if flags&engine.RecordHeaders != 0 {
		pairs := reader{b: r.bytes()}
		sp.Headers = make(map[string]string)
		for len(pairs.b) > 0 && !pairs.bad {
			name := string(pairs.bytes())
			sp.Headers[name] = string(pairs.bytes())
		}
		r.bad = r.bad || pairs.bad
	}
	if flags&engine.RecordCursor != 0 {
		sp.Cursor = &storage.Cursor{}
		if err := json.Unmarshal(r.bytes(), sp.Cursor); err != nil {
			return sp, nil, fmt.Errorf("%w: %w", storage.ErrDamaged, err)
		}
	}
	if flags&engine.RecordParts != 0 {
		rest = r.bytes()
	}
	if r.bad || sp.Kind == "" {
		return sp, nil, storage.ErrDamaged
	}
	sp.Payload = r.b
	return sp, rest, nil
}

// packPast writes a past: when it was created in eight bytes, as claim writes it, then what
// else there is (varints, and the reason to the end).
func packPast(p *engine.Past) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 24), uint64(p.Created))
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

// unpackPast reads a past; an empty one is that of a task created at its version.
func unpackPast(b []byte, version int64) (p engine.Past, err error) {
	if len(b) == 0 {
		return engine.Past{Created: version}, nil
	}
	if len(b) < 8 {
		return p, storage.ErrDamaged
	}
	p.Created = int64(binary.BigEndian.Uint64(b))
	r := reader{b: b[8:]}
	if len(r.b) > 0 {
		p.Retries, p.Crashes = int(r.number()), int(r.number())
	}
	if len(r.b) > 0 {
		p.Snoozes, p.SnoozedSince = int(r.number()), int64(r.number())
		p.Reason = string(r.b)
	}
	const most = 1 << 31
	if r.bad || p.Retries < 0 || p.Retries > most || p.Crashes < 0 || p.Crashes > most ||
		p.Snoozes < 0 || p.Snoozes > most || !isMoment(p.Created) || !isMoment(p.SnoozedSince) ||
		p.Reason != storage.CleanText(p.Reason, storage.MaxReason) {
		return p, storage.ErrDamaged
	}
	return p, nil
}

// lastMoment is the last microsecond of the year 9999: JSON has no later time.
const lastMoment = 253402300799_999999

// isMoment reports whether a time that was read is one that can be told.
func isMoment(us int64) bool { return us >= 0 && us <= lastMoment }
