package cli

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/midgehq/midge/storage"
)

// outage is a storage that cannot be reached in some turns.
type outage struct {
	storage.Storage

	turn       int
	from, last int // first and last turn of the outage
	stop       func()
}

func (o *outage) Stats(ctx context.Context, queues ...string) ([]storage.Stats, error) {
	switch o.turn++; {
	case o.turn == o.last+2:
		o.stop()
	case o.turn >= o.from && o.turn <= o.last:
		return nil, storage.ErrUnavailable
	}
	return o.Storage.Stats(ctx, queues...)
}

// TestAWatchOutlivesAnOutage checks that a watch survives an outage after the first answer, and that it
// fails if it begins in an outage.
func TestAWatchOutlivesAnOutage(t *testing.T) {
	for _, c := range []struct {
		line        string
		from, lines int
		code        int
	}{
		{"stats --watch=200ms -o jsonl", 3, 4, Done},
		{"queue ls --watch=200ms -o jsonl", 3, 4, Done},
		{"stats --watch=200ms -o jsonl", 1, 0, Unreachable},
		{"queue ls --watch=200ms -o jsonl", 1, 0, Unreachable},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.insert(storage.Insert{Ref: storage.Ref{Queue: "mail", ID: "a"}, Kind: "send_mail"})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			r.ctx, r.store = ctx, &outage{Storage: r.store, from: c.from, last: c.from + 4, stop: stop}
			got := r.run(c.line)
			if lines := strings.Count(got.out, "\n"); got.code != c.code || lines < c.lines-1 || lines > c.lines {
				t.Errorf("%s: got %+v, want %d and %d lines", c.line, got, c.code, c.lines)
			}
			if said := strings.Count(got.err, "cannot be reached"); said != 5 && c.code == Done {
				t.Errorf("%s: the outage is said %d times, want 5: %s", c.line, said, got.err)
			}
		})
	}
}
