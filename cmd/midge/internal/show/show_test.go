package show

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestTextsAreWrappedToTheTerminal(t *testing.T) {
	p := &Printer{Width: 30}
	for text, want := range map[string]string{
		"short":                    "short",
		"four words go here twice": "four words go here\ntwice",
		"a-word-that-is-longer-than-its-line and one": "a-word-that-is-longer-than-its-line\nand one",
		"one\ntwo": "one\ntwo", "": "",
	} {
		if got := p.Wrapped(text, 10); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := (&Printer{}).Wrapped("any text of any length is left as it is", 10); strings.Contains(got, "\n") {
		t.Errorf("without a terminal: got %q", got)
	}
}

func TestANameIsCutInItsMiddle(t *testing.T) {
	for most, want := range map[int]string{0: "transactional-mail", 18: "transactional-mail", 17: "transact…nal-mail", 5: "tr…il", 2: "t…", 1: "…"} {
		if got := Middle("transactional-mail", most); got != want {
			t.Errorf("to %d: got %s, want %s", most, got, want)
		}
	}
}

func TestSpansAndNumbersAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 999 * time.Millisecond: "999ms", time.Second: "1s", 59 * time.Second: "59s", 61 * time.Second: "1m 1s",
		10 * time.Minute: "10m", 11*time.Minute + 30*time.Second: "11m", 2*time.Hour + 5*time.Minute: "2h 5m", 26 * time.Hour: "1d 2h",
		90 * 24 * time.Hour: "90d", -time.Minute: "-1m", math.MaxInt64: "106751d", math.MinInt64: "-106751d",
	} {
		if got := Span(d); got != want {
			t.Errorf("%v: got %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 12345678: "12,345,678", -1234: "-1,234", -123: "-123"} {
		if got := Number(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}

func TestForeignTextsCommandNoTerminal(t *testing.T) {
	for _, text := range []string{"\x1b[2Jx", "a\rb", "\x9bm", "a\x00b", "\u202etxt", "a\xffb"} {
		if got := Lines(text); strings.ContainsAny(got, "\x1b\r\x00\u202e") || strings.Contains(got, "\x9b") {
			t.Errorf("%q is shown as %q", text, got)
		}
	}
	if got := Lines("a\n\tb\r\nc"); got != "a\n    b\nc" {
		t.Errorf("got %q, want three lines", got)
	}
}

func TestJSONCommandsNoTerminal(t *testing.T) {
	name := "a\u009b31m\u202eb\x7fc\x1b\u2066\U000e0001ä\n"
	for _, format := range []Format{JSON, JSONL} {
		var out strings.Builder
		if err := (&Printer{Out: &out, Format: format}).Value(fruit{name, 1}); err != nil {
			t.Fatal(err)
		}
		for _, r := range out.String() {
			if r != '\n' && !strconv.IsPrint(r) {
				t.Errorf("%s: %q has %U", format, out.String(), r)
			}
		}
		var back fruit
		if err := json.Unmarshal([]byte(out.String()), &back); err != nil || back.Name != name {
			t.Errorf("%s: %q is read as %q, %v; want %q", format, out.String(), back.Name, err, name)
		}
	}
}

type fruit struct {
	Name string `json:"name"`
	N    int64  `json:"n"`
}

func fruits() List[fruit] {
	return List[fruit]{
		Columns: []Column[fruit]{
			{Name: "n", Right: true, Text: func(_ *Printer, f fruit) string { return Number(f.N) }, Style: func(f fruit) Style {
				if f.N > 9 {
					return Bad
				}
				return Plain
			}},
			{Name: "name", Text: func(_ *Printer, f fruit) string { return f.Name }},
			{Name: "more", Wide: true, Text: func(*Printer, fruit) string { return "x" }},
		},
		Record: func(f fruit) any { return f },
		ID:     func(f fruit) string { return f.Name },
	}
}

func TestRowsAreWrittenInEveryFormat(t *testing.T) {
	rows := []fruit{{"äpfel and more", 5}, {"pear", 12345}}
	for _, c := range []struct {
		p    Printer
		want string
	}{
		{Printer{Format: Table}, "     N  NAME\n     5  äpfel and more\n12,345  pear\n"},
		{Printer{Format: Table, Width: 18}, "     N  NAME\n     5  äpfel and…\n12,345  pear\n"},
		{Printer{Format: Wide, Width: 18}, "     N  NAME            MORE\n     5  äpfel and more  x\n12,345  pear            x\n"},
		{Printer{Format: Table, Columns: []string{"NAME", "more"}}, "NAME            MORE\näpfel and more  x\npear            x\n"},
		{Printer{Format: Table, Color: true, Columns: []string{"n"}}, "     \x1b[2mN\x1b[0m\n     5\n\x1b[31m12,345\x1b[0m\n"},
		{Printer{Format: JSONL}, "{\"name\":\"äpfel and more\",\"n\":5}\n{\"name\":\"pear\",\"n\":12345}\n"},
		{Printer{Format: JSON}, "[\n  {\n    \"name\": \"äpfel and more\",\n    \"n\": 5\n  },\n  {\n    \"name\": \"pear\",\n    \"n\": 12345\n  }\n]\n"},
		{Printer{Format: IDs}, "äpfel and more\npear\n"},
	} {
		var out strings.Builder
		c.p.Out = &out
		if err := fruits().Write(&c.p, rows); err != nil || out.String() != c.want {
			t.Errorf("%+v: got %q, %v; want %q", c.p, out.String(), err, c.want)
		}
	}
}

func TestMomentsAreToldFromTheStoragesTime(t *testing.T) {
	now := time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC)
	for at, want := range map[time.Time]string{
		{}: "-", now: "now", now.Add(-3 * time.Minute): "3m ago", now.Add(2 * time.Hour): "in 2h",
		now.AddDate(-2000, 0, 0): "106751d ago", now.AddDate(2000, 0, 0): "in 106751d",
	} {
		if got := (&Printer{Now: now}).Moment(at); got != want {
			t.Errorf("%v: got %q, want %q", at, got, want)
		}
	}
	if got := (&Printer{Now: now, UTC: true}).Moment(now.In(time.FixedZone("x", 3600))); got != "2026-05-17 12:00:00Z" {
		t.Errorf("got %q, want UTC", got)
	}
}

// TestTheRatesOfStatsAreThoseOfTheHistory checks that crashes count as failures and requeues as enqueued.
func TestTheRatesOfStatsAreThoseOfTheHistory(t *testing.T) {
	now := time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC)
	before := Stats{Time: now, Totals: Totals{Enqueued: 4, Requeued: 1, Completed: 3, Failed: 2, Crashed: 1}}
	after := Stats{Time: now.Add(2 * time.Second), Totals: Totals{
		Enqueued: 8, Requeued: 3, Completed: 5, Dead: 5, Cancelled: 5, Failed: 2, Crashed: 7,
	}}
	after.Since(before)
	if want := (Rates{Enqueued: 3, Completed: 1, Failed: 3}); after.PerSecond == nil || *after.PerSecond != want {
		t.Errorf("got %+v, want %+v", after.PerSecond, want)
	}
}
