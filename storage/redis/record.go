package redis

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/midgehq/midge/storage"
)

// A record is a header of fixed positions, which the scripts read with string.byte,
// then what is there only if its flag says so, then names and bytes. Numbers are
// big-endian. Flags that are not named here, and the parts of later versions, are kept by
// whoever does not know them. What nobody can work with who does not know it has another format: a
// record of a later one is left to those who do.
//
//	0   format, 1; those of later versions are up to 15
//	1   flags: 1 keep, 2 until read, 4 snoozed, 8 timeout, 16 unique for life,
//	    32 unique for a window, 64 cursor
//	2   flags: 1 not to be claimed ahead, 2 something in the side hash, 4 the payload
//	    is in the side hash, 8 a place, 16 parts of a later version
//	3   version (7), created (7), priority + 9 (1)
//	18  retries, most retries, crashes, crash limit (2 each)
//	26  lengths: kind (1), encoding (1), headers (3), payload (4)
//	35  place (7); keep (7); snoozes (2) and since when (7); parts of a later version behind
//	    their length (2); timeout (7); unique key behind its length (1), then how long for a
//	    window (7); cursor behind its length (3)
//	    kind, encoding, headers, payload
const (
	format       = 1
	latestFormat = 15
	headerSize   = 35
	leadSize     = 3  // format and flags
	stampEnd     = 17 // lead, version and time

	hasKeep     = 1
	untilRead   = 2
	hasSnoozes  = 4
	hasTimeout  = 8
	uniqueLife  = 16
	uniqueSpan  = 32
	isCursor    = 64
	startOnly   = 1 // of the second flags
	largeRecord = 4 // likewise
	hasPlace    = 8 // likewise
	hasMore     = 16
	placeSize   = 7

	// largePayload is where a payload moves to the side hash, so that reading and
	// rewriting a record stays cheap.
	largePayload = 4 << 10
)

// errLater is a record of a later version, which those who know it can read.
var errLater = fmt.Errorf("%w: written by a later version of midge", storage.ErrDamaged)

// encodings that take one byte in a record. Names begin with a letter or digit.
var encodings = []string{"", "msgpack", "json"}

func packEncoding(name string) string {
	if i := slices.Index(encodings, name); i > 0 {
		return string(rune(i))
	}
	return name
}

func unpackEncoding(packed string) string {
	if len(packed) == 1 && int(packed[0]) < len(encodings) {
		return encodings[packed[0]]
	}
	return packed
}

// appendUint appends v in n bytes, the highest first.
func appendUint(b []byte, v int64, n int) []byte {
	for i := n - 1; i >= 0; i-- {
		b = append(b, byte(v>>(8*i)))
	}
	return b
}

// newRecord makes the record of an insert, in room if there is enough; the script fills in
// version and time. A large payload is left out, for the side hash.
func newRecord(in *storage.Insert, room []byte) (record, body []byte) {
	var flags, more byte
	payload := in.Payload
	if len(payload) > largePayload {
		more, body, payload = largeRecord, payload, nil
	}
	encoding := packEncoding(in.Encoding)
	headers := packHeaders(in.Headers)
	b := slices.Grow(room[:0], headerSize+64+len(in.Kind)+len(encoding)+len(headers)+len(payload))[:headerSize]
	clear(b)
	b[0] = format
	b[17] = byte(in.Priority + storage.MaxPriority)
	binary.BigEndian.PutUint16(b[20:], uint16(in.MaxRetries))
	binary.BigEndian.PutUint16(b[24:], uint16(in.CrashLimit))
	b[26], b[27] = byte(len(in.Kind)), byte(len(encoding))
	b[28] = byte(len(headers) >> 16)
	binary.BigEndian.PutUint16(b[29:], uint16(len(headers)))
	binary.BigEndian.PutUint32(b[31:], uint32(len(in.Payload)))
	if keep := in.Keep.For.Microseconds(); keep > 0 {
		flags |= hasKeep
		b = appendUint(b, keep, 7)
	}
	if in.Keep.UntilRead {
		flags |= untilRead
	}
	if timeout := in.Timeout.Microseconds(); timeout > 0 {
		flags |= hasTimeout
		b = appendUint(b, timeout, 7)
	}
	switch in.Unique.Mode {
	case storage.UniqueLife:
		flags |= uniqueLife
		b = append(append(b, byte(len(in.Unique.Key))), in.Unique.Key...)
	case storage.UniqueWindow:
		flags |= uniqueSpan
		b = append(append(b, byte(len(in.Unique.Key))), in.Unique.Key...)
		b = appendUint(b, in.Unique.For.Microseconds(), 7)
	}
	if in.Cursor != nil {
		flags |= isCursor
		b = append(b, packCursor(in.Cursor)...)
	}
	b[1], b[2] = flags, more
	b = append(append(b, in.Kind...), encoding...)
	return append(append(b, headers...), payload...), body
}

// packHeaders writes headers, sorted by name.
func packHeaders(headers map[string]string) []byte {
	if len(headers) == 0 {
		return nil
	}
	names := make([]string, 0, len(headers))
	for name := range headers {
		names = append(names, name)
	}
	slices.Sort(names)
	var b []byte
	for _, name := range names {
		b = appendText(appendText(b, name), headers[name])
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// packCursor writes a cursor behind its length. Its declaration leads, behind its own
// length, for the scripts compare it.
func packCursor(c *storage.Cursor) []byte {
	b := append(appendUint([]byte{0, 0, 0}, int64(len(c.Declaration)), 3), c.Declaration...)
	b = binary.AppendVarint(b, micros(c.Next))
	b = binary.AppendVarint(b, micros(c.Last))
	copy(b, appendUint(nil, int64(len(b)-3), 3))
	return b
}

// noTime stands for the zero time, which is far from the epoch.
const noTime = -1 << 62

// micros is a time in microseconds since the epoch.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return noTime
	}
	return t.UnixMicro()
}

// moment is the time of a number of microseconds.
func moment(us int64) time.Time {
	if us == noTime {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func span(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// reader takes a record apart. After the first thing that is not there, bad is set
// and all that follows is zero.
type reader struct {
	rest string
	bad  bool
}

func (r *reader) text(n int) string {
	if r.bad || n < 0 || n > len(r.rest) {
		r.bad = true
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

func (r *reader) number(n int) int64 {
	var v int64
	for _, b := range []byte(r.text(n)) {
		v = v<<8 | int64(b)
	}
	return v
}

// digits reads a decimal number of n digits.
func (r *reader) digits(n int) int64 {
	v, err := strconv.ParseInt(r.text(n), 10, 64)
	r.bad = r.bad || err != nil
	return v
}

func (r *reader) uvarint() uint64 {
	var v uint64
	for shift := 0; shift < 64; shift += 7 {
		b := r.number(1)
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
	r.bad = true
	return 0
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (r *reader) string() string {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.bad = true
		return ""
	}
	return r.text(int(n))
}

// readRecord fills t with what a record says. A payload of the side hash follows the
// record. It gives storage.ErrDamaged where the record cannot be read, t being of no use.
func readRecord(record string, t *storage.Task) error {
	return readInto(record, t, func(payload string) []byte { return []byte(payload) })
}

// readInto is readRecord with a payload that keep copies.
func readInto(record string, t *storage.Task, keep func(string) []byte) error {
	switch {
	case record != "" && record[0] > format && record[0] <= latestFormat:
		return errLater
	case len(record) < headerSize || record[0] != format:
		return storage.ErrDamaged
	}
	r := reader{rest: record[1:]}
	flags, more := byte(r.number(1)), byte(r.number(1))
	t.Version = r.number(7)
	t.Created = moment(r.number(7))
	t.Priority = int(r.number(1)) - storage.MaxPriority
	t.Retries, t.MaxRetries = int(r.number(2)), int(r.number(2))
	t.Crashes, t.CrashLimit = int(r.number(2)), int(r.number(2))
	kind, encoding, headers, payload := r.number(1), r.number(1), r.number(3), r.number(4)
	if more&hasPlace != 0 {
		r.text(placeSize) // it means something to the scripts alone
	}
	if flags&hasKeep != 0 {
		t.Keep.For = span(r.number(7))
	}
	t.Keep.UntilRead = flags&untilRead != 0
	if flags&hasSnoozes != 0 {
		t.Snoozes = int(r.number(2))
		t.SnoozedSince = moment(r.number(7))
	}
	if more&hasMore != 0 {
		r.text(int(r.number(2)))
	}
	if flags&hasTimeout != 0 {
		t.Timeout = span(r.number(7))
	}
	r.unique(flags, t)
	if flags&isCursor != 0 {
		r.cursor(t)
	}
	t.Kind = r.text(int(kind))
	t.Encoding = unpackEncoding(r.text(int(encoding)))
	r.headers(int(headers), t)
	if r.bad || int64(len(r.rest)) != payload {
		return storage.ErrDamaged
	}
	if payload > 0 {
		t.Payload = keep(r.rest)
	}
	return nil
}

// batch gives the tasks of one claim what they have in common from few allocations. It
// is not so large that a task which runs long keeps much of the others' in memory.
type batch struct {
	left int    // bytes of records to come
	free []byte // for payloads
	kind string // of the last task
}

// blockSize is how much is allocated at once, and sharePayload what is worth sharing.
const (
	blockSize    = 16 << 10
	sharePayload = 1 << 10
)

// readRecord is readRecord for one of many.
func (b *batch) readRecord(record string, t *storage.Task) error {
	if err := readInto(record, t, b.bytes); err != nil {
		return err
	}
	if t.Kind != b.kind {
		b.kind = strings.Clone(t.Kind)
	}
	t.Kind = b.kind
	b.left -= len(record)
	return nil
}

// bytes copies a payload.
func (b *batch) bytes(s string) []byte {
	if len(s) > sharePayload {
		return []byte(s)
	}
	if len(s) > cap(b.free)-len(b.free) {
		b.free = make([]byte, 0, max(min(b.left, blockSize), len(s)))
	}
	from := len(b.free)
	b.free = append(b.free, s...)
	return b.free[from:len(b.free):len(b.free)]
}

func (r *reader) unique(flags byte, t *storage.Task) {
	switch {
	case flags&uniqueLife != 0:
		t.Unique.Mode = storage.UniqueLife
		t.Unique.Key = r.text(int(r.number(1)))
	case flags&uniqueSpan != 0:
		t.Unique.Mode = storage.UniqueWindow
		t.Unique.Key = r.text(int(r.number(1)))
		t.Unique.For = span(r.number(7))
	}
}

func (r *reader) headers(n int, t *storage.Task) {
	if n == 0 {
		return
	}
	h := reader{rest: r.text(n), bad: r.bad}
	t.Headers = make(map[string]string)
	for !h.bad && h.rest != "" {
		name := h.string()
		t.Headers[name] = h.string()
	}
	r.bad = r.bad || h.bad
}

func (r *reader) cursor(t *storage.Task) {
	c := reader{rest: r.text(int(r.number(3))), bad: r.bad}
	cursor := &storage.Cursor{Declaration: c.text(int(c.number(3)))}
	cursor.Next, cursor.Last = moment(c.varint()), moment(c.varint())
	r.bad = r.bad || c.bad || c.rest != ""
	t.Cursor = cursor
}

// outcomes of attempts, by the letter that stands for them.
var outcomes = map[byte]string{
	'f': storage.AttemptFailed, 't': storage.AttemptTimedOut, 'p': storage.AttemptPanicked,
	'b': storage.AttemptDiscarded, 'd': storage.AttemptExpired, 'u': storage.AttemptUndecodable,
	'x': storage.AttemptCancelled,
	'k': storage.AttemptCrashed, 'e': storage.AttemptLeaseLost, 'q': storage.AttemptRequeued,
}

// letterOfAttempt gives the letter of the attempt that a settle ends.
func letterOfAttempt(se *storage.Settle) string {
	for letter, outcome := range outcomes {
		if outcome == se.Attempt() {
			return string(letter)
		}
	}
	return "" // no settle of a checked call
}

// readHistory fills t with its reason and attempts. What cannot be read is left out.
func readHistory(log string, t *storage.Task) {
	r := reader{rest: log}
	if log == "" {
		return
	}
	t.Reason = r.text(int(r.number(1)))
	for !r.bad && r.rest != "" {
		item := reader{rest: r.text(int(r.number(2)))}
		a := storage.Attempt{At: moment(item.number(7)), Version: item.number(7)}
		letter := byte(item.number(1))
		a.Runner = item.text(int(item.number(1)))
		a.Outcome, a.Error = outcomes[letter], item.rest
		if !r.bad && !item.bad {
			t.Attempts = append(t.Attempts, a)
		}
	}
}

// lease is what the pending hash says of a task.
type lease struct {
	version int64
	runner  string
	started bool
	asked   bool // to be cancelled
}

// A lease begins with a fence, a token of 16 bytes and a version of 7. A byte of flags follows, and
// outside of a group the rank of the task in its claim.
const (
	fenceSize    = 23
	leaseStarted = 1
	leaseAsked   = 2  // to be cancelled
	leaseAside   = 4  // something came into the side hash since the claim
	leaseRecord  = 8  // its end takes more than the removal of the task
	leaseGrouped = 16 // it shares its deadline with others
)

func readLease(packed string) (lease, error) {
	r := reader{rest: packed}
	r.text(fenceSize - 7)
	l := lease{version: r.number(7)}
	flags := byte(r.number(1))
	if flags&leaseGrouped == 0 {
		r.text(2) // its rank in the claim
	}
	l.started, l.asked, l.runner = flags&leaseStarted != 0, flags&leaseAsked != 0, r.rest
	if r.bad {
		return lease{}, storage.ErrDamaged
	}
	return l, nil
}

// packFence writes token and version as they begin a lease.
func packFence(f *storage.Fence) []byte {
	return appendUint(bytes.Clone(f.Token[:]), f.Version, 7)
}
