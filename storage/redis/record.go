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

// A record is a header with fixed offsets, which the scripts read with string.byte, then parts that
// are there only if their flags are set, then names and bytes. Numbers are big-endian. A version keeps
// the flags and parts of later versions, which it does not know. If a later version adds something that
// an older one must not ignore, it writes another format. A version leaves records of later formats to
// processes that know them.
//
//	0   format, 1; formats of later versions are up to 15
//	1   flags: 1 keep, 2 until read, 4 snoozed, 8 timeout, 16 unique for life,
//	    32 unique for a window, 64 cursor
//	2   flags: 1 not to be claimed ahead, 2 something in the side hash, 4 the payload
//	    is in the side hash, 8 a place, 16 parts, 32 a partition
//	3   version (7), created (7), priority + 9 (1)
//	18  retries, most retries, crashes, crash limit (2 each)
//	26  lengths: kind (1), encoding (1), headers (3), payload (4)
//	35  place (7); partition behind its length (1); keep (7); snoozes (2) and since when (7);
//	    parts behind their length (2); timeout (7); unique key behind its length (1), then its
//	    time for a window (7); cursor behind its length (3)
//	    kind, encoding, headers, payload
//
// A part is its number (1), its length (2) and its content. Part 1 is the attempt that completed a kept task,
// packed as in the history, and comes first. Part 2 is the cost as a number (3), and is there unless the task
// has the zero Cost. All other parts are of later versions.
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
	startOnly   = 1 // of the second flags, as are the next four
	largeRecord = 4
	hasPlace    = 8
	hasMore     = 16
	inPartition = 32
	placeSize   = 7
	runPart     = 1
	costPart    = 2
	costSize    = 3 // of the content of costPart

	// largePayload is the largest payload in bytes that stays in the record. A larger one moves to
	// the side hash, so that reading and rewriting a record stays cheap.
	largePayload = 4 << 10
)

// errLater is the error for a record of a later format, which later versions can read.
var errLater = fmt.Errorf("%w: written by a later version of midge", storage.ErrDamaged)

// encodings are the encodings that take one byte in a record: their index. Other encodings are written
// as their names, which begin with a letter or digit.
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

// newRecord returns the record of an insert, made in room if that is large enough. The script fills in
// version and time. A large payload is not in the record: newRecord returns it as body, for the side hash.
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
	if in.Partition != "" {
		more |= inPartition
		b = append(append(b, byte(len(in.Partition))), in.Partition...)
	}
	if keep := in.Keep.For.Microseconds(); keep > 0 {
		flags |= hasKeep
		b = appendUint(b, keep, 7)
	}
	if cost := packCost(in.Cost); cost != "" {
		more |= hasMore
		b = append(appendUint(b, int64(len(cost)), 2), cost...)
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

// packCost returns the part of a cost, "" for the zero Cost.
func packCost(c storage.Cost) string {
	if c == 0 {
		return ""
	}
	return string(appendUint([]byte{costPart, 0, costSize}, int64(c.N()), costSize))
}

// packHeaders returns the bytes of headers, sorted by name.
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

// packCursor returns the bytes of a cursor behind their length. The declaration comes first, behind
// its own length, because the scripts compare it.
func packCursor(c *storage.Cursor) []byte {
	b := append(appendUint([]byte{0, 0, 0}, int64(len(c.Declaration)), 3), c.Declaration...)
	b = binary.AppendVarint(b, micros(c.Next))
	b = binary.AppendVarint(b, micros(c.Last))
	copy(b, appendUint(nil, int64(len(b)-3), 3))
	return b
}

// noTime is the number for the zero time.
const noTime = -1 << 62

// micros returns a time in microseconds since the epoch, noTime for the zero time.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return noTime
	}
	return t.UnixMicro()
}

// moment returns the time of a number of microseconds since the epoch.
func moment(us int64) time.Time {
	if us == noTime {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func span(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// reader reads the parts of a record, one after the other. After the first part that is not there,
// bad is set and all later parts are zero.
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

// readRecord fills t from a record, behind which stands the payload from the side hash, if any. It returns
// storage.ErrDamaged if it cannot read the record; t is then undefined.
func readRecord(record string, t *storage.Task) error {
	return readInto(record, t, func(payload string, size int64) bool {
		if payload != "" {
			t.Payload = []byte(payload)
		}
		return int64(len(payload)) == size
	})
}

// readInto is readRecord with a payload that the function keep copies into t. keep reports whether this is
// the payload of a record that names its size.
func readInto(record string, t *storage.Task, keep func(payload string, size int64) bool) error {
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
		r.text(placeSize) // only the scripts use it
	}
	t.Partition = ""
	if more&inPartition != 0 {
		t.Partition = r.text(int(r.number(1)))
	}
	if flags&hasKeep != 0 {
		t.Keep.For = span(r.number(7))
	}
	t.Keep.UntilRead = flags&untilRead != 0
	if flags&hasSnoozes != 0 {
		t.Snoozes = int(r.number(2))
		t.SnoozedSince = moment(r.number(7))
	}
	t.Attempts, t.Cost = nil, 0
	if more&hasMore != 0 {
		r.parts(t)
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
	if r.bad || !keep(r.rest, payload) {
		return storage.ErrDamaged
	}
	return nil
}

// batch reads the records of one claim with few allocations: small payloads share blocks, and tasks of
// the same kind share its name. Blocks are small, so that a task that runs for long keeps little memory
// of the other tasks.
type batch struct {
	left int    // bytes of records to come
	free []byte // for payloads
	kind string // of the last task
}

// blockSize is the size of a shared block, and sharePayload that of the largest payload that shares one.
const (
	blockSize    = 16 << 10
	sharePayload = 1 << 10
)

// readRecord is the function readRecord for one task of the batch. aside is the size of a payload that is not
// behind the record, because the claim does not read the side hash; 0 for any other payload.
func (b *batch) readRecord(record string, t *storage.Task) (aside int64, err error) {
	err = readInto(record, t, func(payload string, size int64) bool {
		switch {
		case size > 0 && payload == "":
			aside = size
		case size > 0:
			t.Payload = b.bytes(payload)
		}
		return aside > 0 || int64(len(payload)) == size
	})
	if err != nil {
		return 0, err
	}
	if t.Kind != b.kind {
		b.kind = strings.Clone(t.Kind)
	}
	t.Kind, t.Partition = b.kind, strings.Clone(t.Partition)
	b.left -= len(record)
	return aside, nil
}

// bytes returns a copy of a payload, a small one in a shared block.
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

// parts reads the parts of a record that have numbers.
func (r *reader) parts(t *storage.Task) {
	p := reader{rest: r.text(int(r.number(2))), bad: r.bad}
	for p.rest != "" && !p.bad {
		number, content := p.number(1), p.text(int(p.number(2)))
		switch {
		case number == runPart:
			t.Attempts = appendAttempt(nil, content)
		case number == costPart && t.Cost == 0:
			p.bad = p.bad || !readCost(content, t)
		case number == costPart:
			p.bad = true
		}
	}
	r.bad = r.bad || p.bad
}

// readCost fills in the cost of t, and reports whether its content is that of a cost.
func readCost(content string, t *storage.Task) bool {
	r := reader{rest: content}
	n := r.number(costSize)
	if t.Cost = storage.Cost(n); n == 0 {
		t.Cost = storage.NoCost
	}
	return !r.bad && r.rest == "" && n <= storage.MaxCost
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

// outcomes are the outcomes of attempts by their letters.
var outcomes = map[byte]string{
	'f': storage.AttemptFailed, 't': storage.AttemptTimedOut, 'p': storage.AttemptPanicked,
	'b': storage.AttemptDiscarded, 'd': storage.AttemptExpired, 'u': storage.AttemptUndecodable,
	'x': storage.AttemptCancelled, 'c': storage.AttemptSucceeded,
	'k': storage.AttemptCrashed, 'e': storage.AttemptLeaseLost, 'q': storage.AttemptRequeued,
}

// letterOfAttempt returns the letter for the outcome of the attempt that a settle ends.
func letterOfAttempt(se *storage.Settle) string {
	for letter, outcome := range outcomes {
		if outcome == se.Attempt() {
			return string(letter)
		}
	}
	return "" // not for a settle of a checked call
}

// readHistory fills in the reason of t, and puts its history before the attempt that its record has, if any.
// It leaves out attempts that it cannot read.
func readHistory(log string, t *storage.Task) {
	r := reader{rest: log}
	if log == "" {
		return
	}
	run := t.Attempts
	t.Attempts = nil
	t.Reason = r.text(int(r.number(1)))
	for !r.bad && r.rest != "" {
		t.Attempts = appendAttempt(t.Attempts, r.text(int(r.number(2))))
	}
	t.Attempts = append(t.Attempts, run...)
	t.Attempts = t.Attempts[max(0, len(t.Attempts)-storage.MaxAttempts):]
}

// appendAttempt appends a packed attempt that can be read.
func appendAttempt(attempts []storage.Attempt, packed string) []storage.Attempt {
	item := reader{rest: packed}
	a := storage.Attempt{At: moment(item.number(7)), Version: item.number(7)}
	letter := byte(item.number(1))
	a.Runner, a.Claimed = readHolder(item.text(int(item.number(1))), a.Version)
	if a.Outcome, a.Error = outcomes[letter], item.rest; item.bad {
		return attempts
	}
	return append(attempts, a)
}

// lease is a value of the hash pending: the lease of a task.
type lease struct {
	version int64
	runner  string
	claimed time.Time
	started bool
	asked   bool // to be cancelled
}

// A lease begins with a fence, which is a token of 16 bytes and a version of 7. A byte of flags follows,
// outside of a group the rank of the task in its claim (2 bytes), and then the runner. If the clock was set
// back, so that the version does not show when the claim was made, that moment follows behind a NUL (7
// bytes). An attempt of the history has the runner and that moment in the same form. If the task counts for
// the Concurrency of its partition, the key of the partition and its length (1) come last.
const (
	fenceSize    = 23
	leaseStarted = 1
	leaseAsked   = 2  // the task is to be cancelled
	leaseAside   = 4  // something was put into the side hash since the claim
	leaseRecord  = 8  // the end of the task takes more than its removal
	leaseCounted = 16 // the task counts for the Concurrency of its partition
	leaseGrouped = 32 // the lease shares its deadline with others
)

func readLease(packed string) (lease, error) {
	r := reader{rest: packed}
	r.text(fenceSize - 7)
	l := lease{version: r.number(7)}
	flags := byte(r.number(1))
	if flags&leaseGrouped == 0 {
		r.text(2) // its rank in the claim
	}
	l.started, l.asked = flags&leaseStarted != 0, flags&leaseAsked != 0
	if last := len(r.rest) - 1; flags&leaseCounted != 0 && last >= 0 {
		r.rest = r.text(last - int(r.rest[last]))
	}
	l.runner, l.claimed = readHolder(r.rest, l.version)
	if r.bad {
		return lease{}, storage.ErrDamaged
	}
	return l, nil
}

// readHolder returns the runner that made a claim, and when, from the end of a lease or an attempt.
// version is that of the claim, 0 for none.
func readHolder(packed string, version int64) (runner string, claimed time.Time) {
	runner, at, known := strings.Cut(packed, "\x00")
	switch {
	case known && len(at) == 7:
		r := reader{rest: at}
		claimed = moment(r.number(7))
	case version > 0:
		claimed = moment(version)
	}
	return runner, claimed
}

// packFence returns the bytes of a fence, with which a lease begins.
func packFence(f *storage.Fence) []byte {
	return appendUint(bytes.Clone(f.Token[:]), f.Version, 7)
}
