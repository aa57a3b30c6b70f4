package midge

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/runner"
	"github.com/midgehq/midge/storage"
)

func TestVerdictOf(t *testing.T) {
	boom := errors.New("boom")
	wrap := func(err error) error { return fmt.Errorf("send: %w", err) }
	cases := []struct {
		name  string
		err   error
		ask   runner.Ask
		delay time.Duration
		text  string
	}{
		{"nil", nil, runner.Retry, 0, ""},
		{"an error", boom, runner.Retry, 0, "boom"},
		{"Discard", Discard(boom), runner.Discard, 0, "boom"},
		{"Discard of nil", Discard(nil), runner.Retry, 0, ""},
		{"RetryIn", RetryIn(time.Minute, boom), runner.RetryIn, time.Minute, "boom"},
		{"RetryIn of nil", RetryIn(time.Minute, nil), runner.Retry, 0, ""},
		{"RetryIn in the past", RetryIn(-time.Minute, boom), runner.RetryIn, -time.Minute, "boom"},
		{"RetryIn far too late", RetryIn(1<<62, boom), runner.RetryIn, 1 << 62, "boom"},
		{"Snooze", Snooze(time.Hour), runner.Snooze, time.Hour, "snoozed for 1h0m0s"},
		{"Snooze for less than nothing", Snooze(-time.Hour), runner.Snooze, time.Second, "snoozed for -1h0m0s"},
		{"Snooze for nothing", Snooze(0), runner.Snooze, time.Second, "snoozed for 0s"},
		{"wrapped Discard", wrap(Discard(boom)), runner.Discard, 0, "send: boom"},
		{"wrapped RetryIn", wrap(RetryIn(time.Second, boom)), runner.RetryIn, time.Second, "send: boom"},
		{"wrapped Snooze", wrap(Snooze(time.Second)), runner.Snooze, time.Second, "send: snoozed for 1s"},
		{"joined Snooze", errors.Join(boom, Snooze(time.Second)), runner.Snooze, time.Second, "boom\nsnoozed for 1s"},
		{"Throttle", Throttle(time.Minute), runner.Throttle, time.Minute, "throttled for 1m0s"},
		{"wrapped Throttle", wrap(Throttle(time.Second)), runner.Throttle, time.Second, "send: throttled for 1s"},
		{"Throttle and Snooze", errors.Join(Snooze(1), Throttle(time.Second)), runner.Throttle, time.Second, "snoozed for 1ns\nthrottled for 1s"},
		{"Throttle and RetryIn", errors.Join(Throttle(time.Second), RetryIn(1, boom)), runner.RetryIn, 1, "throttled for 1s\nboom"},
		{"Discard of RetryIn", Discard(RetryIn(time.Second, boom)), runner.Discard, 0, "boom"},
		{"RetryIn of Discard", RetryIn(time.Second, Discard(boom)), runner.Discard, 0, "boom"},
		{"all joined", errors.Join(Snooze(1), RetryIn(1, boom), Discard(boom)), runner.Discard, 0, "snoozed for 1ns\nboom\nboom"},
	}
	for _, c := range cases {
		v := verdictOf(c.err)
		text := ""
		if v.Err != nil {
			text = v.Err.Error()
		}
		if v.Ask != c.ask || v.Delay != c.delay || text != c.text {
			t.Errorf("%s: got %v %v %q, want %v %v %q", c.name, v.Ask, v.Delay, text, c.ask, c.delay, c.text)
		}
	}
}

func TestVerdictsKeepTheCause(t *testing.T) {
	boom := errors.New("boom")
	for _, err := range []error{Discard(boom), RetryIn(time.Second, boom), fmt.Errorf("x: %w", Discard(boom))} {
		if !errors.Is(err, boom) {
			t.Errorf("%v: want errors.Is to find its cause", err)
		}
	}
}

func TestDeadErrorText(t *testing.T) {
	e := &DeadError{Ref: storage.Ref{Queue: "mail", ID: "7"}, Reason: "out of retries", Last: "smtp refused"}
	if got, want := e.Error(), "midge: mail/7 is dead: out of retries: smtp refused"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	e.Last, e.Reason = "a\x1b[2J\u202eb\n"+strings.Repeat("x", 1<<20), "odd\u200b"
	if got, want := e.Error(), `midge: mail/7 is dead: odd\u200b: a\x1b[2J\u202eb\nx`; !strings.HasPrefix(got, want) || len(got) > 2<<10 {
		t.Errorf("got %d bytes %.100q, want %q and little more", len(got), got, want)
	}
	e.Last, e.Reason = "", "out of retries"
	if got, want := e.Error(), "midge: mail/7 is dead: out of retries"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
