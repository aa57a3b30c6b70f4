package storage_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/midgehq/midge/storage"
)

func invalid(t *testing.T, what string, err error) {
	t.Helper()
	var bad *storage.InvalidError
	if !errors.As(err, &bad) {
		t.Errorf("%s: got error %v, want an *InvalidError", what, err)
		return
	}
	if bad.What == "" || bad.Want == "" || !utf8.ValidString(bad.Error()) || len(bad.Error()) > 600 {
		t.Errorf("%s: got %q, want what was given and what is wanted, in a line", what, bad.Error())
	}
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{"a", "0", "Mail", "a.b-c_d", "mail:welcome", "a:", strings.Repeat("z", storage.MaxName), storage.NewID()} {
		if err := storage.CheckName("name", name); err != nil {
			t.Errorf("%q: got %v, want nil", name, err)
		}
	}
	for _, name := range []string{
		"", ".a", "-a", "_a", "a b", "a/b", "a{b}", "é", "a\x00", "a\n", ":a", "*", strings.Repeat("z", storage.MaxName+1),
		strings.Repeat("\xff", 1<<20),
	} {
		invalid(t, fmt.Sprintf("%.20q", name), storage.CheckName("name", name))
	}
}

func TestLimits(t *testing.T) {
	if err := (storage.Limits{}).Check(); err != nil {
		t.Errorf("zero limits: got %v, want nil", err)
	}
	want := storage.Limits{MaxPayload: 1 << 20, DeadFor: 90 * 24 * time.Hour, DeadMax: 10_000, DeclinedFor: 24 * time.Hour}
	if got := (storage.Limits{}).WithDefaults(); got != want {
		t.Errorf("defaults: got %+v, want %+v", got, want)
	}
	none := storage.Limits{DeadMax: storage.NoLimit}
	if err := none.Check(); err != nil || none.WithDefaults().DeadMax != storage.NoLimit {
		t.Errorf("no limit: got %+v, error %v, want DeadMax as it is", none.WithDefaults(), err)
	}
	own := storage.Limits{MaxPayload: storage.MaxPayloadCap, DeadFor: time.Second, DeadMax: 1, DeclinedFor: time.Minute}
	if err := own.Check(); err != nil || own.WithDefaults() != own {
		t.Errorf("own limits: got %+v, error %v, want them as they are", own.WithDefaults(), err)
	}
	for what, l := range map[string]storage.Limits{
		"a payload too big": {MaxPayload: storage.MaxPayloadCap + 1}, "a negative payload": {MaxPayload: -1},
		"a negative age": {DeadFor: -1}, "90 days without their unit": {DeadFor: 90}, "too old": {DeadFor: storage.MaxDelay + 1}, "a negative number": {DeadMax: -2},
		"24 hours without their unit": {DeclinedFor: 24},
	} {
		invalid(t, what, l.Check())
	}
}

// TestCheckTxsNamesTheMistake checks which mistake an error names. That a storage makes these checks at
// all is tested by storagetest.
func TestCheckTxsNamesTheMistake(t *testing.T) {
	good := storage.Insert{Ref: storage.Ref{Queue: "q", ID: "a"}, Kind: "k", Encoding: "raw", CrashLimit: 1}
	fence := storage.Fence{Ref: storage.Ref{Queue: "q", ID: "b"}, Version: 1}
	for want, tx := range map[string]storage.Tx{
		"transaction \"of 0 operations\"": {},
		"naming q/a twice":                {Inserts: []storage.Insert{good}, Depends: []storage.Depend{{Ref: good.Ref, Version: 1}}},
		"Settle.Outcome \"explode\"":      {Settles: []storage.Settle{{Fence: fence, Outcome: "explode"}}},
		"Settle.Fence.Version 0":          {Settles: []storage.Settle{{Fence: storage.Fence{Ref: fence.Ref}, Outcome: storage.Fail}}},
		"Delete.Version 0":                {Deletes: []storage.Delete{{Ref: good.Ref}}},
		"Change.Version 0":                {Changes: []storage.Change{{Ref: good.Ref, Now: true}}},
		"a requeue only with new content": {Changes: []storage.Change{{Ref: good.Ref, Cancel: true, Requeue: true}}},
		"FromStart only with a requeue":   {Changes: []storage.Change{{Ref: good.Ref, Version: 1, FromStart: true}}},
	} {
		err := storage.CheckTxs(storage.Limits{}, []storage.Tx{tx})
		invalid(t, want, err)
		if err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want it to name %q", err, want)
		}
	}
	if err := storage.CheckTxs(storage.Limits{}, []storage.Tx{{Inserts: []storage.Insert{good}}}); err != nil {
		t.Errorf("a good insert: got %v, want nil", err)
	}
}

// TestErrorsQuoteNoValue: an error is logged, stored with a task and shown, also to people from whom headers and
// unique keys are hidden.
func TestErrorsQuoteNoValue(t *testing.T) {
	const secret = "Bearer s3cret"
	good := storage.Insert{Ref: storage.Ref{Queue: "q", ID: "a"}, Kind: "k", Encoding: "raw", CrashLimit: 1}
	for want, change := range map[string]func(in *storage.Insert){
		`header token "of 14 bytes"`:  func(in *storage.Insert) { in.Headers = map[string]string{"token": secret + "\xff"} },
		`header secret "of 15 bytes"`: func(in *storage.Insert) { in.Headers = map[string]string{"secret": "\x00" + secret + "\x00"} },
		`unique key "of 13 bytes"`:    func(in *storage.Insert) { in.Unique = storage.Unique{Mode: storage.UniqueLife, Key: secret} },
		`unique key "of 0 bytes"`:     func(in *storage.Insert) { in.Unique = storage.Unique{Mode: storage.UniqueLife} },
		`unique key "of 1300 bytes"`: func(in *storage.Insert) {
			in.Unique = storage.Unique{Mode: storage.UniqueWindow, For: time.Hour, Key: strings.Repeat(secret, 100)}
		},
	} {
		in := good
		change(&in)
		changes := []storage.Tx{{Inserts: []storage.Insert{in}}}
		if in.Headers != nil {
			changes = append(changes, storage.Tx{Changes: []storage.Change{{
				Ref: in.Ref, Version: 1, Encoding: "raw", Headers: in.Headers,
			}}})
		}
		for _, tx := range changes {
			err := storage.CheckTxs(storage.Limits{}, []storage.Tx{tx})
			invalid(t, want, err)
			if text := fmt.Sprint(err); strings.Contains(text, "s3cret") || !strings.Contains(text, want) {
				t.Errorf("got %q, want it to say %q and to quote no value", text, want)
			}
		}
	}
}

func TestCheckTxsCursor(t *testing.T) {
	ref := storage.Ref{Queue: "q", ID: storage.CursorPrefix + "c"}
	good := storage.Insert{
		Ref: ref, Kind: "k", Encoding: "raw", CrashLimit: 1, Cursor: &storage.Cursor{},
	}
	check := func(tx storage.Tx) error { return storage.CheckTxs(storage.Limits{}, []storage.Tx{tx}) }
	if err := check(storage.Tx{
		Deletes: []storage.Delete{{Ref: ref, Version: 1}}, Inserts: []storage.Insert{good},
	}); err != nil {
		t.Errorf("a cursor replaced: got %v, want nil", err)
	}
	for what, alter := range map[string]func(*storage.Insert){
		"a delay":      func(in *storage.Insert) { in.Delay = 1 },
		"a moment":     func(in *storage.Insert) { in.At = time.Unix(1, 0) },
		"a unique key": func(in *storage.Insert) { in.Unique = storage.Unique{Key: "k", Mode: storage.UniqueLife} },
		"a long declaration": func(in *storage.Insert) {
			in.Cursor = &storage.Cursor{Declaration: strings.Repeat("d", storage.MaxHeaderBytes+1)}
		},
		"no cursor": func(in *storage.Insert) { in.Cursor = nil },
	} {
		in := good
		alter(&in)
		invalid(t, what, check(storage.Tx{Inserts: []storage.Insert{in}}))
	}
	for what, ch := range map[string]storage.Change{
		"a moment": {Now: true}, "a cancel": {Cancel: true}, "a requeue": {Requeue: true},
		"a queue": {Queue: "other"}, "a delay": {Delay: 1},
	} {
		ch.Ref, ch.Version = ref, 1
		invalid(t, "change of a cursor with "+what, check(storage.Tx{Changes: []storage.Change{ch}}))
	}
}

func TestTxQueues(t *testing.T) {
	ref := func(q string) storage.Ref { return storage.Ref{Queue: q, ID: "a"} }
	tx := storage.Tx{
		Inserts: []storage.Insert{{Ref: ref("b")}, {Ref: ref("a")}},
		Changes: []storage.Change{{Ref: ref("b"), Queue: "target"}},
		Deletes: []storage.Delete{{Ref: ref("c")}},
		Depends: []storage.Depend{{Ref: ref("d")}},
		Settles: []storage.Settle{{Fence: storage.Fence{Ref: ref("a")}}},
	}
	if got, want := tx.Queues(), []string{"a", "b", "target", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("queues: got %v, want %v", got, want)
	}
	if got := tx.Ops(); got != 6 {
		t.Errorf("operations: got %d, want 6", got)
	}
}

// TestAttemptTexts: of a long error the history keeps the beginning, and Task.Stack all of it.
func TestAttemptTexts(t *testing.T) {
	long := strings.Repeat("x", storage.MaxAttemptError+1)
	for _, c := range [][4]string{
		{"short", "stack", "short", "stack"},
		{"short", "", "short", ""},
		{long, "stack", long[1:], long + "\n\nstack"},
		{long, "", long[1:], long},
	} {
		if kept, full := storage.AttemptTexts(c[0], c[1]); kept != c[2] || full != c[3] {
			t.Errorf("of %d and %d bytes: got %d and %d, want %d and %d",
				len(c[0]), len(c[1]), len(kept), len(full), len(c[2]), len(c[3]))
		}
	}
}

func FuzzCleanText(f *testing.F) {
	f.Add("plain", 3)
	f.Add("a\x00b\xff\xfe\xed\xa0\x80c\U0001F600", 7)
	f.Add("\xe6\x97", 1)
	f.Add("", 0)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = min(max(limit, 0), 1<<16)
		got := storage.CleanText(s, limit)
		if !utf8.ValidString(got) || strings.ContainsRune(got, 0) || len(got) > limit {
			t.Fatalf("got %q, want valid UTF-8 without NUL of at most %d bytes", got, limit)
		}
		if again := storage.CleanText(got, limit); again != got {
			t.Fatalf("cleaned again: got %q, want %q", again, got)
		}
		if utf8.ValidString(s) && !strings.ContainsRune(s, 0) {
			if len(s) <= limit && got != s {
				t.Fatalf("a clean text: got %q, want it as it is: %q", got, s)
			}
			if !strings.HasPrefix(s, got) || len(s) > limit && len(got) < limit-utf8.UTFMax+1 {
				t.Fatalf("a long text: got %d bytes of %d, want as many as fit in %d", len(got), len(s), limit)
			}
		}
	})
}

// rtl and hidden are characters that reorder a line, or are invisible in it.
const rtl, hidden = "\u202e", "\u200b"

func TestPrintableText(t *testing.T) {
	for _, c := range []struct {
		given string
		limit int
		want  string
	}{
		{"", 0, ""},
		{"grüße, € \"a\\b\" 😀", 64, "grüße, € \"a\\b\" 😀"},
		{"pay" + rtl + "gpj.exe" + hidden, 64, `pay\u202egpj.exe\u200b`},
		{"\x1b[2J\r\n\t\x00\x07\u0085", 64, `\x1b[2J\r\n\t\x00\a\u0085`},
		{"a\u2028b\u2066c\ufeff", 64, `a\u2028b\u2066c\ufeff`},
		{"a\xffb", 64, `a\xffb`},
		{"abcdef", 6, "abcdef"},
		{"abcdef", 5, "abcde…"},
		{"€€", 5, "€…"},
		{"ab\n", 3, `ab…`},
	} {
		if got := storage.PrintableText(c.given, c.limit); got != c.want {
			t.Errorf("%q of %d: got %q, want %q", c.given, c.limit, got, c.want)
		}
	}
}

func FuzzPrintableText(f *testing.F) {
	f.Add("plain", 3)
	f.Add("a\x00b\xff\xfe\xed\xa0\x80c"+rtl, 7)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = min(max(limit, 0), 1<<16)
		got := storage.PrintableText(s, limit)
		if len(got) > limit+len("…") || strings.ContainsFunc(got, func(r rune) bool { return !strconv.IsPrint(r) }) || !utf8.ValidString(got) {
			t.Fatalf("got %q, want at most %d printable bytes", got, limit)
		}
	})
}

// TestNamesInErrorsAreShortAndPrintable: a name from an untrusted source must neither flood an error nor
// rearrange its text.
func TestNamesInErrorsAreShortAndPrintable(t *testing.T) {
	for what, bad := range map[string]string{
		"long": strings.Repeat("x", 1<<20), "reversed": rtl + "evil" + hidden, "a terminal's": "\x1b[2J\r", "broken": "\xff\xfe",
	} {
		ref := storage.Ref{Queue: bad, ID: bad}
		for from, text := range map[string]string{
			"a ref":     ref.String(),
			"a task":    storage.Task{Ref: ref}.String(),
			"CheckName": storage.CheckName("name", bad).Error(),
			"CheckRef":  storage.CheckRef(ref).Error(),
			"Invalid":   storage.Invalid("x", fmt.Errorf("of %s", bad), "%s", bad).Error(),
			"a refusal": (&storage.DependencyError{Missing: []storage.Ref{ref}}).Error(),
		} {
			if len(text) > 2<<10 || strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
				t.Errorf("%s, %s: got %d bytes that begin with %.80q, want a short printable text", what, from, len(text), text)
			}
		}
	}
	if got := (storage.Ref{Queue: "mail", ID: "a.b-c_7"}).String(); got != "mail/a.b-c_7" {
		t.Errorf("a sound ref: got %q", got)
	}
}

// FuzzUniqueKey checks that different lists of parts have different keys: a length before each part marks its
// end.
func FuzzUniqueKey(f *testing.F) {
	f.Add([]byte("ab"), []byte("c"), []byte("a"), []byte("bc"))
	f.Add([]byte(""), []byte("x"), []byte("x"), []byte(""))
	f.Fuzz(func(t *testing.T, a, b, c, d []byte) {
		one, two := storage.UniqueKey(a, b), storage.UniqueKey(c, d)
		if same := bytes.Equal(a, c) && bytes.Equal(b, d); same != (one == two) {
			t.Fatalf("keys of (%q, %q) and (%q, %q): got %s and %s", a, b, c, d, one, two)
		}
		joined := append(slices.Clone(a), b...)
		if one == storage.UniqueKey(joined) || one == storage.UniqueKey(a, b, nil) {
			t.Fatalf("key of (%q, %q): got that of other parts", a, b)
		}
		if err := storage.CheckName("unique key", one); err != nil || len(one) != 26 {
			t.Fatalf("key %q: error %v, want a name of 26 characters", one, err)
		}
	})
}

func TestNewID(t *testing.T) {
	seen := map[string]bool{}
	for range 10_000 {
		id := storage.NewID()
		if err := storage.CheckName("task id", id); err != nil || len(id) != 26 || seen[id] {
			t.Fatalf("id %q: error %v, want a new name of 26 characters", id, err)
		}
		seen[id] = true
	}
}

func TestTokenIsSecret(t *testing.T) {
	token := storage.Token([]byte("0123456789abcdef"))
	fence := storage.Fence{Ref: storage.Ref{Queue: "q", ID: "a"}, Version: 1, Token: token}
	asJSON, err := json.Marshal(fence) //nolint:musttag // as a careless log line would
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%v %+v %#v %s %q %x %s %v", fence, fence, fence, token, token, token, asJSON, &fence)
	for _, verb := range "vTtbcdoOqxXUeEfFgGs" {
		text += fmt.Sprintf(" %"+string(verb)+" %"+string(verb)+" % #"+string(verb), token, fence, &token)
	}
	for _, secret := range []string{
		"0123456789abcdef", "30313233343536373839616263646566", "48 49 50", "0x30, 0x31", "0x30 0x31", "U+0030 U+0031", "'0' '1'", "0 1 2", "110000", "60 61 62",
	} {
		if strings.Contains(text, secret) {
			t.Errorf("printed: got %s, want no %q in it", text, secret)
		}
	}
}

func TestKeepOf(t *testing.T) {
	for _, c := range []struct {
		keep   storage.Keep
		state  storage.State
		result bool
		want   time.Duration
	}{
		{storage.Keep{}, storage.Completed, false, 0},
		{storage.Keep{}, storage.Completed, true, storage.DefaultResultKeep},
		{storage.Keep{}, storage.Cancelled, true, 0},
		{storage.Keep{UntilRead: true}, storage.Completed, false, storage.DefaultUnreadKeep},
		{storage.Keep{UntilRead: true}, storage.Completed, true, storage.DefaultUnreadKeep},
		{storage.Keep{UntilRead: true}, storage.Cancelled, false, 0},
		{storage.Keep{For: time.Minute, UntilRead: true}, storage.Completed, true, time.Minute},
		{storage.Keep{For: time.Minute}, storage.Cancelled, false, time.Minute},
	} {
		if got := c.keep.Of(c.state, c.result); got != c.want {
			t.Errorf("%+v in %s, result %v: got %v, want %v", c.keep, c.state, c.result, got, c.want)
		}
	}
}
