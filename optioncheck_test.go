package midge

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// internal lists names that no application has written.
var internal = []string{
	"Insert.", "Change.", "Cursor.", "Settings.", "TasksQuery.", "Limits.", "cursor.x", "/cursor.", "transaction", "876000h",
}

// wantsWord checks that an error names the caller's own text.
func wantsWord(t *testing.T, err error, what, text string) {
	t.Helper()
	var invalid *InvalidError
	if !errors.As(err, &invalid) {
		t.Errorf("%s: got %v, want an *InvalidError", what, err)
		return
	}
	if invalid.What != what || !strings.Contains(invalid.Error(), text) {
		t.Errorf("got %v, want it about %s, with %q", invalid, what, text)
	}
	for _, word := range internal {
		if strings.Contains(err.Error(), word) && !strings.Contains(invalid.Got, word) {
			t.Errorf("%v: says %s, which nobody wrote", err, word)
		}
	}
}

func TestWrongOptionsAreNamedAsTheyWereWritten(t *testing.T) {
	c, err := NewClient(stranger{}, ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	far := time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, o := range []struct {
		option     Option
		what, text string
	}{
		{Priority(10), "Priority", "10: want -9 to 9"},
		{To("a b"), "To", `"a b": want 1 to 128 letters`},
		{To(""), "To", `"": want`},
		{ID(""), "ID", `"": want`},
		{ID("cursor.x"), "ID", `does not begin with "cursor."`},
		{In(-time.Second), "In", "-1s: want 0 to 100 years"},
		{In(1 << 62), "In", "want 0 to 100 years"},
		{At(time.Time{}), "At", `"zero time": want a moment`},
		{At(far), "At", "2300-01-01 00:00:00 +0000 UTC: want a moment before the year 2200"},
		{To("midge.ledger"), "To", `"midge.ledger": want one that does not begin with "midge."`},
		{Retries(0), "Retries", "0: want 1 to 9999, or None for none"},
		{Retries(-2), "Retries", "-2: want 1 to 9999, or None for none"},
		{CrashLimit(0), "CrashLimit", "0: want 1 to 9999"},
		{Retries(10_000), "Retries", "10000: want"},
		{Timeout(-1), "Timeout", "-1ns: want"},
		{Timeout(30), "Timeout", "30ns: want 0 for none, or 1ms to 100 years"},
		{KeepFor(60), "KeepFor", "60ns: want 0, or 1ms to 100 years"},
		{KeepFor(-time.Hour), "KeepFor", "-1h0m0s: want"},
		{Header("", "x"), "name of Header", `"": want at least one`},
		{Header("midge.x", "x"), "name of Header", `does not begin with "midge."`},
		{Unique{For: 1}, "Unique.For", "1ns: want 0, or 1ms to 100 years"},
		{Unique{By: []string{"B"}}, "Unique.By", `"B": want an exported field of midge.plain`},
		{Geometric{Factor: 0.5}, "Geometric.Factor", "0.5: want"},
		{Geometric{First: 2}, "Geometric.First", "2ns: want 0 for the default, or 1ms to 100 years"},
		{Geometric{Max: -1}, "Geometric.Max", "want 0 for the default, or 1ms to 100 years"},
	} {
		_, err := c.Enqueue(t.Context(), plain{}, o.option)
		wantsWord(t, err, o.what, o.text)
	}
	_, err = c.EnqueueIn(t.Context(), -time.Second, plain{})
	wantsWord(t, err, "EnqueueIn", "-1s: want")
	_, err = c.EnqueueAt(t.Context(), time.Time{}, plain{})
	wantsWord(t, err, "EnqueueAt", `"zero time": want a moment`)
	_, err = c.EnqueueIn(t.Context(), time.Second, plain{}, At(time.Now()))
	wantsWord(t, err, "option At", "beside EnqueueIn")
	_, err = c.Enqueue(t.Context(), plain{}, UntilRead(), KeepFor(time.Hour))
	wantsWord(t, err, "option KeepFor", `"beside UntilRead": want one of them`)
	_, err = c.Enqueue(t.Context(), plain{strings.Repeat("x", 1<<20)})
	wantsWord(t, err, "parameters", "see ClientConfig.MaxPayload")
	_, err = NewClient(stranger{}, ClientConfig{MaxPayload: -1})
	wantsWord(t, err, "ClientConfig.MaxPayload", "-1: want 0 to 16777216 bytes, 0 for 1 MiB")
}

// both is two options in one.
type both [2]PeriodicOption

func (b both) declare(d *scheduleTerms) { b[0].declare(d); b[1].declare(d) }

func TestWrongOptionsOfATypeAreNamedAsTheyWereDeclared(t *testing.T) {
	for what, o := range map[string]Options{
		"Options.Queue":           {Queue: "a b"},
		"Options.Priority":        {Priority: 10},
		"Options.Retries":         {Retries: -2},
		"Options.CrashLimit":      {CrashLimit: -1},
		"Options.Timeout":         {Timeout: 30},
		"Options.Keep.For":        {Keep: Keep{For: 60}},
		"Options.Encoding":        {Encoding: "xml"},
		"name in Options.Headers": {Headers: map[string]string{"midge.x": "y"}},
		"Unique.For":              {Unique: &Unique{For: -time.Hour}},
	} {
		optionsUnderTest = o
		_, err := new(definitions).of(optional{})
		wantsWord(t, err, what, "want ")
	}
}

func TestWrongSchedulesAreNamedAsTheyWereDeclared(t *testing.T) {
	r, err := NewRunner(stranger{}, RunnerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	hourly, daily := Every(time.Hour), Cron("@daily")
	for _, d := range []struct {
		s          Schedule
		option     PeriodicOption
		what, text string
	}{
		{Every(time.Millisecond), Priority(0), "Every", "1ms: want 1s to 100 years"},
		{Cron("@every 1ms"), Priority(0), "Every", "1ms: want"},
		{Cron("@every soon"), Priority(0), "Cron", `"@every soon": want a duration`},
		{Cron("* * *"), Priority(0), "Cron", `"* * *": want five or six`},
		{Schedule{}, Priority(0), "schedule", "made by Every or Cron"},
		{hourly, Priority(10), "Priority", "10: want"},
		{hourly, Zone("Europe/Paris"), "Zone", "none beside Every"},
		{daily, Zone("Europe/Atlantis"), "Zone", `"Europe/Atlantis": want a name`},
		{hourly, Named("a b"), "Named", `"a b": want`},
		{hourly, Named(strings.Repeat("x", 122)), "Named", "at most 121 characters"},
		{hourly, both{SkipMissed(), AllMissed(1)}, "option AllMissed", `"beside SkipMissed": want one of them`},
		{hourly, both{AllMissed(1), SkipMissed()}, "option SkipMissed", `"beside AllMissed": want one of them`},
		{hourly, both{AllMissed(1), both{KeepFor(time.Hour), UntilRead()}}, "option UntilRead", `"beside KeepFor"`},
		{hourly, AllMissed(101), "AllMissed", "101: want 0 to 100"},
		{hourly, To(""), "To", `"": want`},
		{hourly, In(time.Hour), "option", `"In": want none of`},
		{hourly, At(time.Now()), "option", `"At": want none of`},
		{hourly, ID("x"), "option", `"ID": want none of`},
		{hourly, Unique{}, "option", `"Unique": want none of`},
		{hourly, nil, "option", `"nil": want an option`},
	} {
		wantsWord(t, r.Periodic(d.s, plain{}, d.option), d.what, d.text)
	}
	if err := r.Periodic(hourly, plain{}); err != nil {
		t.Fatal(err)
	}
	wantsWord(t, r.Periodic(daily, plain{}), "schedule", `"default/plain twice": want`)
}

func TestWrongQuestionsAboutAQueueAreNamedAsTheyWereAsked(t *testing.T) {
	c, err := NewClient(stranger{}, ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	q, ctx := c.Queue("mail"), t.Context()
	_, err = q.Page(ctx, "lost", "", 0)
	wantsWord(t, err, "state", `"lost": want one of`)
	_, err = q.Page(ctx, storage.Dead, "", 201)
	wantsWord(t, err, "limit", "201: want 0 to 200")
	_, err = q.DeleteAll(ctx, "lost", nil)
	wantsWord(t, err, "state", `"lost": want one of`)
	for _, err = range q.Tasks(ctx, "lost") {
		wantsWord(t, err, "state", `"lost": want one of`)
	}
	wantsWord(t, q.PauseFor(ctx, -1), "PauseFor", "-1ns: want 1ms to 100 years")
	wantsWord(t, q.PauseFor(ctx, 60), "PauseFor", "60ns: want 1ms to 100 years")
	wantsWord(t, q.PauseFor(ctx, 1<<62), "PauseFor", "want 1ms to 100 years")
	wantsWord(t, c.Change(ctx, Ref{Queue: "mail", ID: "1"}, In(-1)), "In", "-1ns: want")
	wantsWord(t, c.Change(ctx, Ref{Queue: "mail", ID: "1"}, At(time.Time{})), "At", "zero time")
	wantsWord(t, c.Change(ctx, Ref{Queue: "mail", ID: "1"}, To("a b")), "To", `"a b": want`)
	wantsWord(t, c.Change(ctx, Ref{Queue: "mail", ID: "1"}, Retries(1)), "option Retries", "want Priority, Partition, Cost, In, At, Deadline, Header or To")
}

func TestWrongConfigurationsAreNamedAsTheyWereWritten(t *testing.T) {
	ab := []string{"a", "b"}
	for _, c := range []struct {
		cfg        RunnerConfig
		what, text string
	}{
		{RunnerConfig{Concurrency: -1}, "RunnerConfig.Concurrency", "-1: want 1 to 1000000"},
		{RunnerConfig{Concurrency: 1 << 40}, "RunnerConfig.Concurrency", "want 1 to 1000000"},
		{RunnerConfig{Lease: -time.Second}, "RunnerConfig.Lease", "-1s: want 1s to 100 years"},
		{RunnerConfig{Lease: 1}, "RunnerConfig.Lease", "1ns: want 1s"},
		{RunnerConfig{Lease: 1 << 62}, "RunnerConfig.Lease", "want 1s to 100 years"},
		{RunnerConfig{Grace: -time.Second}, "RunnerConfig.Grace", "-1s: want 0 to 100 years, or None; 0 means"},
		{RunnerConfig{Grace: 1 << 62}, "RunnerConfig.Grace", "want 0 to 100 years"},
		{RunnerConfig{Version: strings.Repeat("v", 129)}, "RunnerConfig.Version", "want at most 128 bytes of text"},
		{RunnerConfig{Version: "v\x00"}, "RunnerConfig.Version", "want at most 128 bytes of text"},
		{RunnerConfig{Ahead: -time.Second}, "RunnerConfig.Ahead", "-1s: want 0 to a third of the lease, 10s, or None"},
		{RunnerConfig{Ahead: time.Minute}, "RunnerConfig.Ahead", "1m0s: want 0 to a third"},
		{RunnerConfig{Queues: []string{"a b"}}, "name in RunnerConfig.Queues", `"a b": want 1 to 128 letters`},
		{RunnerConfig{Queues: []string{"midge.a"}}, "name in RunnerConfig.Queues", `"midge.a": want one that does not begin with "midge."`},
		{RunnerConfig{Queues: []string{"a", "a"}}, "RunnerConfig.Queues", `"a twice": want each queue once`},
		{RunnerConfig{Queues: make([]string, 1001)}, "RunnerConfig.Queues", `"1001 of them": want at most 1000`},
		{RunnerConfig{Weights: map[string]int{"a": 1}}, "RunnerConfig.Weights", `"without Queues": want`},
		{RunnerConfig{Queues: ab, Weights: map[string]int{"c": 1}}, "RunnerConfig.Weights", `"c": want queues that are served`},
		{RunnerConfig{Queues: ab, Weights: map[string]int{"b": 0}}, `RunnerConfig.Weights["b"]`, "0: want 1 to 1000000"},
		{RunnerConfig{Queues: ab, Weights: map[string]int{"a": 1 << 62}}, `RunnerConfig.Weights["a"]`, "want 1 to 1000000"},
		{RunnerConfig{Middleware: []Middleware{nil}}, "RunnerConfig.Middleware", `"with a nil": want functions`},
	} {
		_, err := NewRunner(stranger{}, c.cfg)
		wantsWord(t, err, c.what, c.text)
		wantsPrefix(t, err, "midge: new runner: invalid ")
	}
	for _, none := range []storage.Storage{nil, (*stranger)(nil)} {
		_, err := NewRunner(none, RunnerConfig{})
		wantsWord(t, err, "store", "want an opened storage")
		wantsPrefix(t, err, "midge: new runner: invalid ")
		_, err = NewClient(none, ClientConfig{})
		wantsWord(t, err, "store", "want an opened storage")
	}
	for what, cfg := range map[string]ClientConfig{
		"ClientConfig.Patience":   {Patience: -time.Second},
		"ClientConfig.MaxPayload": {MaxPayload: 1 << 30},
	} {
		_, err := NewClient(stranger{}, cfg)
		wantsWord(t, err, what, "want 0 to 1")
		wantsPrefix(t, err, "midge: new client: invalid ")
	}
}

func TestWrongChangesOfARunnerAreNamedAsTheyWereWritten(t *testing.T) {
	r, err := NewRunner(stranger{}, RunnerConfig{Lease: 1100 * time.Millisecond, Grace: None, Ahead: None})
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"concurrency":    r.SetConcurrency(0),
		"queues":         r.SetQueues(nil, nil),
		"name in queues": r.SetQueues([]string{""}, nil),
		"weights":        r.SetQueues([]string{"a"}, map[string]int{"b": 1}),
		`weights["a"]`:   r.SetQueues([]string{"a"}, map[string]int{"a": -1}),
	} {
		wantsWord(t, err, what, "want ")
		wantsPrefix(t, err, "midge: set ")
	}
}

func wantsPrefix(t *testing.T, err error, prefix string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), prefix) {
		t.Errorf("got %v, want it to begin with %q", err, prefix)
	}
}

// For any value of a caller, the error is a line that people can read.
func TestErrorsOfLongTextsAreShort(t *testing.T) {
	c, err := NewClient(stranger{}, ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRunner(stranger{}, RunnerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x\x1b", 5000)
	enqueued := func(opts ...Option) error { _, err := c.Enqueue(t.Context(), plain{}, opts...); return err }
	periodic := func(s Schedule, opts ...PeriodicOption) error { return r.Periodic(s, plain{}, opts...) }
	runner := func(cfg RunnerConfig) error { _, err := NewRunner(stranger{}, cfg); return err }
	for what, err := range map[string]error{
		"To": enqueued(To(long)), "ID": enqueued(ID(long)), "Unique.By": enqueued(Unique{By: []string{long}}),
		"name of Header": enqueued(Header("midge."+long, "")), "value of Header": enqueued(Header(long, "\xff")),
		"value of Header, with NUL": enqueued(Header(long, "\x00")), "name of Header, no UTF-8": enqueued(Header(long+"\xff", "")),
		"headers too long": enqueued(Header(strings.Repeat(long, 10), "")),
		"Named":            periodic(Every(time.Hour), Named(long)), "Zone": periodic(Cron("@daily"), Zone(long)), "Cron": periodic(Cron(long)),
		"a step of Cron": periodic(Cron("*/70" + strings.Repeat(",*/70", 100) + " * * * *")),
		"Queues":         runner(RunnerConfig{Queues: []string{long}}),
		"Weights":        runner(RunnerConfig{Queues: []string{"a"}, Weights: map[string]int{long: 1}}),
		"Version":        runner(RunnerConfig{Version: long}),
	} {
		var invalid *InvalidError
		switch {
		case !errors.As(err, &invalid):
			t.Errorf("%s: got %v, want an *InvalidError", what, err)
		case len(err.Error()) > 1000 || strings.ContainsRune(err.Error(), '\x1b'):
			t.Errorf("%s: got %d bytes, %.100q; want a short line", what, len(err.Error()), err.Error())
		}
	}
}
