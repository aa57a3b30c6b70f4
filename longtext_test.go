package midge_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// longHeaders is a job with headers that its type declares.
type longHeaders struct{ N int }

var longHeadersOf map[string]string

func (longHeaders) Options() midge.Options { return midge.Options{Headers: longHeadersOf} }

// TestAnErrorAboutALongTextIsShort has texts of 10,000 characters wherever an option takes a text.
func TestAnErrorAboutALongTextIsShort(t *testing.T) {
	const most = 1000
	long := strings.Repeat("x", 10_000)
	bad := long + "\xff"
	defer func() { longHeadersOf = nil }()
	client := newClient(t, untouched{})
	enqueue := func(job any, opts ...midge.Option) error { return second(client.Enqueue(t.Context(), job, opts...)) }
	declared := func(headers map[string]string) error {
		longHeadersOf = headers
		return second(newClient(t, untouched{}).Enqueue(t.Context(), longHeaders{}))
	}
	setting := func(name, value string) *midge.Client {
		return must1(midge.NewClient(untouched{}, midge.ClientConfig{Middleware: []midge.EnqueueMiddleware{passing(func(inserts []*storage.Insert) []*storage.Insert {
			inserts[0].Headers = map[string]string{name: value}
			return inserts
		})}}))
	}
	middled, middledValue := setting(bad, "a"), setting(long, bad)
	runner := must1(midge.NewRunner(untouched{}, midge.RunnerConfig{}))
	for what, err := range map[string]error{
		"the name of a header":         enqueue(work{}, midge.Header(bad, "a")),
		"the value of a header":        enqueue(work{}, midge.Header("a", bad)),
		"a reserved name":              enqueue(work{}, midge.Header("midge."+long, "a")),
		"a value with NUL":             enqueue(work{}, midge.Header("a", long+"\x00")),
		"the name in Options.Headers":  declared(map[string]string{bad: "a"}),
		"the value in Options.Headers": declared(map[string]string{"a": bad}),
		"a bad value of a long name":   enqueue(work{}, midge.Header(long, "\xff")),
		"a long value of no name":      enqueue(work{}, midge.Header("", long)),
		"headers in all":               enqueue(work{}, midge.Header(long, strings.Repeat(long, 7))),
		"a header of a middleware":     second(middled.Enqueue(t.Context(), work{})),
		"the value in a middleware":    second(middledValue.Enqueue(t.Context(), work{})),
		"a queue":                      enqueue(work{}, midge.To(long)),
		"an id":                        enqueue(work{}, midge.ID(long)),
		"Unique.By":                    enqueue(work{}, midge.Unique{By: []string{long}}),
		"a cron line":                  runner.Periodic(midge.Cron(long), work{}),
		"a zone":                       runner.Periodic(midge.Cron("@daily"), work{}, midge.Zone(long)),
		"a name of a schedule":         runner.Periodic(midge.Cron("@daily"), work{}, midge.Named(long)),
		"the queue of a runner":        second(midge.NewRunner(untouched{}, midge.RunnerConfig{Queues: []string{long}})),
		"the version of a runner":      second(midge.NewRunner(untouched{}, midge.RunnerConfig{Version: long})),
		"a ref":                        second(midge.ParseRef(long)),
		"a ref with a queue":           second(midge.ParseRef(long + "/" + long)),
		"the queue of a client":        client.Queue(long).Pause(t.Context()),
		"the task of a client":         client.Delete(t.Context(), midge.Ref{Queue: long, ID: long}),
	} {
		if !errors.As(err, new(*midge.InvalidError)) || len(err.Error()) > most {
			text := "nil"
			if err != nil {
				text = err.Error()
			}
			t.Errorf("%s: got an error of %d bytes, want an *InvalidError of at most %d: %.200s", what, len(text), most, text)
		}
	}
}
