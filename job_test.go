package midge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/codec"
	"github.com/midgehq/midge/storage"
)

func TestSnakeCase(t *testing.T) {
	for name, want := range map[string]string{
		"SendWelcome": "send_welcome", "HTTPPing": "http_ping", "Cleanup": "cleanup", "A": "a", "AB": "ab",
		"ABTest": "ab_test", "SendSMS": "send_sms", "Resize2x": "resize2x", "ID3Tag": "id3_tag", "Already_Snake": "already_snake",
		"lower": "lower", "JSONToXML": "json_to_xml", "Größe": "größe", "": "",
	} {
		if got := snakeCase(name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func FuzzSnakeCase(f *testing.F) {
	f.Add("SendWelcome")
	f.Add("ÄÖ_ü\xff")
	f.Fuzz(func(t *testing.T, name string) {
		snake := snakeCase(name)
		if again := snakeCase(snake); again != snake {
			t.Errorf("%q: %q becomes %q, want it to stay", name, snake, again)
		}
	})
}

// Each of the job types below is correct, or wrong in one way.
type (
	plain          struct{ Name string }
	empty          struct{}
	hidden         struct{ name string } //nolint:unused // the test is that it is not stored
	generic[T any] struct{ Value T }
	größe          struct{ A int } //nolint:asciicheck // another alphabet is under test
	named          struct{ Name string }
	badKind        struct{ A int }
	panics         struct{ A int }
	pointers       struct{ A int }
	fieldsNamed    struct{ Kind, Options, Run string }
	encodes        struct{ name string }
	base           struct{ Name string }
	embeds         struct{ base }
	number         int
	optional       struct{ A int }
)

func (named) Kind() string                         { return "mail.v2" }
func (badKind) Kind() string                       { return "no spaces" }
func (*panics) Kind() string                       { var p *panics; return string(rune(p.A)) }
func (*pointers) Kind() string                     { return "by_pointer" }
func (*pointers) Options() Options                 { return Options{Queue: "q"} }
func (e encodes) MarshalText() ([]byte, error)     { return []byte(e.name), nil }
func (e *encodes) UnmarshalText(text []byte) error { e.name = string(text); return nil }

func TestDefine(t *testing.T) {
	for _, c := range []struct {
		job         any
		kind, queue string
	}{
		{plain{}, "plain", "default"},
		{&plain{}, "plain", "default"},
		{empty{}, "empty", "default"},
		{named{}, "mail.v2", "default"},
		{pointers{}, "by_pointer", "q"},
		{fieldsNamed{}, "fields_named", "default"},
		{encodes{}, "encodes", "default"},
		{embeds{}, "embeds", "default"},
	} {
		d, err := new(definitions).of(c.job)
		if err != nil || d.kind != c.kind || d.queue != c.queue {
			t.Errorf("%T: got %+v, %v; want kind %s in queue %s", c.job, d, err, c.kind, c.queue)
		}
	}
}

func TestDefineRefuses(t *testing.T) {
	for name, job := range map[string]any{
		"nil":                        nil,
		"a nil pointer":              (*plain)(nil),
		"a number":                   7,
		"a named number":             number(7),
		"a pointer to a pointer":     new(*plain),
		"a map":                      map[string]int{},
		"a function":                 func() {},
		"no exported fields":         hidden{},
		"a generic type":             generic[int]{},
		"a type without a name":      struct{ A int }{},
		"a name of another alphabet": größe{},
		"a kind that does not do":    badKind{},
		"a Kind that panics":         panics{},
		"an Options that panics":     optionsPanic{},
		"an overlong queue":          overlong{},
	} {
		_, err := new(definitions).of(job)
		if _, ok := errors.AsType[*InvalidError](err); !ok {
			t.Errorf("%s: got %v, want an *InvalidError", name, err)
		}
	}
}

type optionsPanic struct{ A int }

func (optionsPanic) Options() Options { panic("no options") }

// overlong declares a queue with an invalid name.
type overlong struct{ A int }

func (overlong) Options() Options { return Options{Queue: strings.Repeat("q", 129)} }

func (o optional) Options() Options { return optionsUnderTest }

// optionsUnderTest are the options that optional declares; one test sets it.
var optionsUnderTest Options

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"a bad queue":           {Queue: "a b"},
		"a priority of 10":      {Priority: 10},
		"retries of -2":         {Retries: -2},
		"retries beyond reason": {Retries: 10_000},
		"a crash limit of -1":   {CrashLimit: -1},
		"a negative timeout":    {Timeout: -1},
		"a negative keep":       {Keep: Keep{For: -1}},
		"an encoding unknown":   {Encoding: "xml"},
		"a header of midge's":   {Headers: map[string]string{"midge.x": "y"}},
		"an empty header":       {Headers: map[string]string{"": "y"}},
		"a window too short":    {Unique: &Unique{For: time.Microsecond}},
		"a window below zero":   {Unique: &Unique{For: -time.Hour}},
		"unique by no field":    {Unique: &Unique{By: []string{"B"}}},
		"unique by it twice":    {Unique: &Unique{By: []string{"A", "A"}}},
		"unique in two ways":    {Unique: &Unique{By: []string{"A"}, Key: "k"}},
	} {
		optionsUnderTest = o
		_, err := new(definitions).of(optional{})
		if _, ok := errors.AsType[*InvalidError](err); !ok {
			t.Errorf("%s: got %v, want an *InvalidError", name, err)
		}
	}
	optionsUnderTest = Options{Retries: None}
	d, err := new(definitions).of(optional{})
	if err != nil || d.options.Retries != 0 || d.options.CrashLimit != 3 || d.options.Encoding != MessagePack {
		t.Errorf("got %+v, %v; want no retries and the defaults", d, err)
	}
}

func (p plain) Run(context.Context) error { return nil }

func TestRegisterRefuses(t *testing.T) {
	runner := func() *Runner {
		r, err := NewRunner(stranger{}, RunnerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	twice := runner()
	if err := Register[plain](twice); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"no runner":        Register[plain](nil),
		"the kind again":   Handle(twice, func(context.Context, plain) error { return nil }),
		"no function":      Handle[plain](runner(), nil),
		"a number":         Handle(runner(), func(context.Context, int) error { return nil }),
		"a pointer":        Handle(runner(), func(context.Context, *plain) error { return nil }),
		"an interface":     Handle(runner(), func(context.Context, any) error { return nil }),
		"nothing exported": Handle(runner(), func(context.Context, hidden) error { return nil }),
		"a generic type":   Handle(runner(), func(context.Context, generic[int]) error { return nil }),
	} {
		if _, ok := errors.AsType[*InvalidError](err); !ok {
			t.Errorf("%s: got %v, want an *InvalidError", name, err)
		}
	}
}

// stranger is a storage that must not be called: each call would use a nil pointer.
type stranger struct{ storage.Storage }

// TestRunRefusesMoreKindsThanAClaimNames checks the error, which names the number of kinds.
func TestRunRefusesMoreKindsThanAClaimNames(t *testing.T) {
	r, err := NewRunner(stranger{}, RunnerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range storage.MaxKinds + 1 {
		d := &definition{kind: fmt.Sprint("kind", i), queue: DefaultQueue}
		if err := r.add(&handler{definition: d}); err != nil {
			t.Fatal(err)
		}
	}
	err = r.Run(t.Context())
	var invalid *InvalidError
	if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "1001") || !strings.Contains(err.Error(), "1000") {
		t.Errorf("got %v, want an *InvalidError that names 1001 kinds and the bound", err)
	}
}

func TestHandlerRuns(t *testing.T) {
	r, err := NewRunner(stranger{}, RunnerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := Handle(r, func(_ context.Context, j plain) error { got = append(got, j.Name); return nil }); err != nil {
		t.Fatal(err)
	}
	h := r.jobs.handlers["plain"]
	run := func(encoding, payload string) error {
		job, err := h.decode(encoding, []byte(payload))
		if err != nil {
			return err
		}
		return h.run(t.Context(), job)
	}
	for _, c := range []struct{ encoding, payload string }{
		{"msgpack", "\x81\xa4Name\xa1a"},
		{"json", `{"Name":"b"}`},
		{"json", ` {"Unknown":[{}]} `},
		{"msgpack", "\x82\xa7Unknown\x91\x80\xa4Name\xa1d"},
	} {
		if err := run(c.encoding, c.payload); err != nil {
			t.Errorf("%s %q: %v", c.encoding, c.payload, err)
		}
	}
	if want := "a b  d"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, c := range []struct{ encoding, payload string }{
		{"msgpack", ""},
		{"msgpack", "\xc0"},
		{"msgpack", "\x81\xa4Name\x01"},
		{"msgpack", "\x81\xa4Name\xa1aa"},
		{"json", ""},
		{"json", "null"},
		{"json", " null\n"},
		{"json", `{"Name":1}`},
		{"json", `{"Name":"a"}}`},
		{"xml", "<a/>"},
		{"", ""},
	} {
		if err := run(c.encoding, c.payload); !errors.As(err, new(*codec.DecodeError)) {
			t.Errorf("%s %q: got %v, want it undecodable", c.encoding, c.payload, err)
		}
	}
}

type misdeclared struct{}

func (misdeclared) Options() *Options { return nil }

type unencodable struct{ C any }

func TestWhatWouldBePassedOverIsRefused(t *testing.T) {
	var invalid *InvalidError
	if _, err := new(definitions).of(misdeclared{}); !errors.As(err, &invalid) {
		t.Errorf("a method Options of another signature: %v, want an *InvalidError", err)
	}
	d, err := new(definitions).of(unencodable{})
	if err == nil {
		_, err = newInsert(d, unencodable{make(chan int)}, nil)
	}
	if !errors.As(err, &invalid) {
		t.Errorf("a channel: %v, want an *InvalidError", err)
	}
	if _, err := cursorInsert(mustDefine(t, unencodable{}), "", unencodable{}, Cron("0 0 31 2 *"), nil); !errors.As(err, &invalid) {
		t.Errorf("a schedule that never ticks: %v, want an *InvalidError", err)
	}
}

func mustDefine(t *testing.T, job any) *definition {
	t.Helper()
	d, err := new(definitions).of(job)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDecodeReadsATasksParameters(t *testing.T) {
	type sums struct{ Of []int }
	in, err := newInsert(mustDefine(t, sums{}), sums{[]int{1, 2}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	task := storage.Task{Ref: in.Ref, Kind: in.Kind, Encoding: in.Encoding, Payload: in.Payload}
	var got sums
	if err := Decode(task, &got); err != nil || len(got.Of) != 2 {
		t.Errorf("decoded %+v, %v", got, err)
	}
	var invalid *InvalidError
	if err := Decode(task, got); !errors.As(err, &invalid) {
		t.Errorf("into a value: %v, want an *InvalidError", err)
	}
}
