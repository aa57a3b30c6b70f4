package storage

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of the contract.
const (
	MaxName         = 128                        // bytes of a queue, id, kind, runner
	MaxPriority     = 9                          // and -9
	MaxTxOps        = 1000                       // operations of one Tx
	MaxTxBytes      = 4 << 20                    // bytes of one Tx, or of its one operation
	MaxClaim        = 1000                       // tasks of one Claim
	MaxClaimBytes   = 4 << 20                    // payload of one Claim, or of its one task; and of its Ticks
	MaxLimit        = 9999                       // of MaxRetries and of CrashLimit
	MaxHeaderBytes  = 64 << 10                   // of headers without DueHeader and QueueHeader
	MaxAttempts     = 10                         // of a task's history
	MaxAttemptError = 1 << 10                    // bytes of an attempt's error
	MaxText         = 64 << 10                   // bytes of a stack or full error
	MaxReason       = 128                        // bytes of a reason
	MaxRunning      = 1000                       // tasks that a heartbeat lists
	MaxPayloadCap   = 16 << 20                   // the largest Limits.MaxPayload
	MinLease        = time.Second                //
	MinSpan         = time.Millisecond           // of a duration whose zero means something else
	MaxDelay        = 100 * 365 * 24 * time.Hour // of any duration
	MaxPage         = 200                        // tasks of a page
	MaxNames        = 1000                       // queues of a Claim, a Wait, a runner, a page of them
	MaxKinds        = 1000                       // kinds of a Claim, a runner
	MaxStatsKinds   = 20                         // kinds of Stats.Declined
	MaxVitals       = 16 << 10                   // bytes of a runner's vitals
	MaxTroubles     = 100                        // kinds of RunnerInfo.Undecodable
	MaxPartition    = 128                        // bytes of the key of a partition
	MaxRest         = 100                        // partitions that a Claim wakes from their rest, in a queue
	MaxTurns        = 1000                       // partitions of a queue that a Claim examines
)

// NoLimit is the value of a limit that bounds nothing: see Limits.DeadMax.
const NoLimit = -1

// NoTimeout is the Insert.Timeout and Task.Timeout of a task whose attempts may take any time, whatever
// the timeout of their runner. It is the longest duration, so that a program of a version without it
// allows such a task a hundred years.
const NoTimeout = MaxDelay

// Limits are the limits that an application sets in a storage's Config. A field that is
// zero means its default.
type Limits struct {
	// MaxPayload bounds payload, result, progress and checkpoint, in bytes:
	// default 1 MiB, at most 16 MiB.
	MaxPayload int
	// DeadFor is how long dead tasks are kept: default 90 days.
	DeadFor time.Duration
	// DeadMax is how many dead tasks a queue keeps: default 10,000. If a queue has more, the
	// storage deletes the oldest, and counts them in Totals.Evicted. With NoLimit a queue keeps
	// all its dead tasks for DeadFor.
	DeadMax int
	// DeclinedFor is how long a task waits in the line of its kind while no Claim names
	// that kind, before it is dead: default 24 hours. Runners also put off for this time
	// a task whose parameters do not fit its job.
	DeclinedFor time.Duration
}

// WithDefaults returns l with the default in each field that is zero.
func (l Limits) WithDefaults() Limits {
	if l.MaxPayload == 0 {
		l.MaxPayload = 1 << 20
	}
	if l.DeadFor == 0 {
		l.DeadFor = 90 * 24 * time.Hour
	}
	if l.DeadMax == 0 {
		l.DeadMax = 10_000
	}
	if l.DeclinedFor == 0 {
		l.DeclinedFor = 24 * time.Hour
	}
	return l
}

// Check returns an *InvalidError if a limit is out of range.
func (l Limits) Check() error {
	switch {
	case l.MaxPayload < 0 || l.MaxPayload > MaxPayloadCap:
		return Invalid("Limits.MaxPayload", l.MaxPayload, "0 to %d bytes", MaxPayloadCap)
	case l.DeadMax < NoLimit:
		return Invalid("Limits.DeadMax", l.DeadMax, "0 or more, or NoLimit")
	}
	return firstError(
		checkSpan("Limits.DeadFor", l.DeadFor),
		checkSpan("Limits.DeclinedFor", l.DeclinedFor),
	)
}

// Invalid returns an *InvalidError. got is printed with %v and shortened; a string is quoted. The other
// texts are shortened too, because what may quote the name of a header. Errors are logged, stored and shown:
// got is nothing of a payload, and neither the value of a header nor a unique key.
func Invalid(what string, got any, want string, args ...any) *InvalidError {
	text := fmt.Sprint(got)
	if s, ok := got.(string); ok {
		if text = strconv.Quote(cut(s, 64)); len(s) > 64 {
			text += "…"
		}
	}
	return &InvalidError{
		What: PrintableText(what, 300), Got: PrintableText(text, 300),
		Want: PrintableText(fmt.Sprintf(want, args...), 1<<10),
	}
}

// CheckName returns an *InvalidError unless name matches
// ^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$. what is the thing that has the name, such as
// "kind".
func CheckName(what, name string) error {
	if !isName(name) {
		return Invalid(what, name, wantName, MaxName)
	}
	return nil
}

const wantName = "1 to %d letters, digits, '_', '.', '-', ':', beginning with a letter or digit"

func isName(name string) bool {
	ok := len(name) > 0 && len(name) <= MaxName && nameByte[name[0]] == 1
	for i := 1; ok && i < len(name); i++ {
		ok = nameByte[name[i]] != 0
	}
	return ok
}

// nameByte holds for each byte whether a name may have it: 0 nowhere, 1 anywhere, 2 anywhere but at
// the beginning.
var nameByte = func() (in [256]byte) {
	for c := range in {
		switch c := byte(c); {
		case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z':
			in[c] = 1
		case c == '_', c == '.', c == '-', c == ':':
			in[c] = 2
		}
	}
	return in
}()

// ReservedQueues is the prefix of the queues in which midge keeps its own records, such as the history
// that the dashboard shows. Applications neither enqueue into them nor change them, and lists for people
// leave them out. A storage treats them like any other queue.
const ReservedQueues = "midge."

// LoadKind is the kind of the tasks that record how far a file has been loaded into their queue; see the
// command midge load. No runner has a job of this kind, and such a task is never due. If it is gone, the file
// can be loaded again, so that calls about many tasks leave it as it is: only a call that names it, and the
// removal of its queue, delete, requeue or change it. A cancel stops the load, which can then go on. A
// storage treats it like any other task.
const LoadKind = "midge.load"

// ImportKind is the kind of the tasks that record how far a queue of asynq has been imported; see the
// command midge import. The rules for [LoadKind] hold for it too, except that an import goes on after a
// cancel. If the record of a killed import is gone, its tasks can be enqueued again.
const ImportKind = "midge.import"

// RecordKind reports whether the tasks of a kind are records of midge itself: [LoadKind] or [ImportKind].
func RecordKind(kind string) bool { return kind == LoadKind || kind == ImportKind }

// Reserved reports whether a queue is midge's own.
func Reserved(queue string) bool { return strings.HasPrefix(queue, ReservedQueues) }

// CheckRef returns an *InvalidError unless both names of ref satisfy CheckName.
func CheckRef(ref Ref) error {
	if err := CheckName("queue name", ref.Queue); err != nil {
		return err
	}
	return CheckName("task id", ref.ID)
}

// CleanText makes s valid UTF-8 without NUL, of at most limit bytes.
func CleanText(s string, limit int) string {
	s = cut(s, limit) // first, so that a huge text costs no more than a long one
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return cut(strings.ToValidUTF8(s, "\uFFFD"), limit)
}

// AttemptTexts returns two texts for the error and the stack of an attempt: kept is the error that the
// history keeps, and full is for Task.Stack. If the error does not fit into the history, full is the
// whole error followed by the stack, else only the stack.
func AttemptTexts(text, stack string) (kept, full string) {
	kept, full = CleanText(text, MaxAttemptError), CleanText(stack, MaxText)
	if len(text) <= MaxAttemptError {
		return kept, full
	}
	text = CleanText(text, MaxText)
	if full == "" {
		return kept, text
	}
	return kept, text + "\n\n" + full
}

// PrintableText makes s fit for a line of a log or the text of an error: it is cut at limit bytes,
// with an ellipsis in place of the rest, and characters that do not print are written as Go quotes
// them. So control characters, and characters that reorder a line or are invisible in it, change
// nothing on a terminal.
func PrintableText(s string, limit int) string {
	odd := func(r rune) bool { return !strconv.IsPrint(r) }
	if len(s) <= limit && utf8.ValidString(s) && !strings.ContainsFunc(s, odd) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		shown := s[i : i+n]
		if !strconv.IsPrint(r) || r == utf8.RuneError && n == 1 {
			quoted := strconv.Quote(shown)
			shown = quoted[1 : len(quoted)-1]
		}
		if b.Len()+len(shown) > limit {
			b.WriteString("…")
			break
		}
		b.WriteString(shown)
		i += n
	}
	return b.String()
}

// cut returns at most limit bytes of s, and does not end within a rune.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := limit
	for end > 0 && limit-end < utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// UniqueKey hashes the parts of a unique key, each prefixed by its length, to 26
// characters.
func UniqueKey(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
	return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)[:16]))
}

func checkDuration(what string, d time.Duration) error {
	if d < 0 || d > MaxDelay {
		return Invalid(what, d, "0 to %v", MaxDelay)
	}
	return nil
}

// checkSpan checks durations whose zero means none, or a default. It refuses durations below MinSpan,
// so that a number of seconds given as nanoseconds is not taken for a duration of about zero.
func checkSpan(what string, d time.Duration) error {
	if d != 0 && (d < MinSpan || d > MaxDelay) {
		return Invalid(what, d, "0, or %v to %v", MinSpan, MaxDelay)
	}
	return nil
}

// latest is the last moment that a storage has to represent exactly.
var latest = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

func checkTime(what string, t time.Time) error {
	if t.After(latest) || t.Before(time.Time{}) {
		return Invalid(what, t, "a time from the year 1 to 2199")
	}
	return nil
}

// checkText checks texts that a storage keeps unchanged.
func checkText(what, text string) error {
	if !isText(text) {
		return Invalid(what, text, wantText)
	}
	return nil
}

const wantText = "valid UTF-8 without NUL"

func isText(text string) bool { return strings.IndexByte(text, 0) < 0 && utf8.ValidString(text) }

func checkBytes(what string, b []byte, limit int) error {
	if len(b) > limit {
		return Invalid(what, fmt.Sprintf("of %d bytes", len(b)), "at most %d bytes", limit)
	}
	return nil
}
