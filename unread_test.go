package midge_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
)

// crateBefore is crate before two of its fields were renamed.
type crateBefore struct {
	To, Phone string
	Weight    int
}

func (crateBefore) Kind() string { return "crate" }

type crateBeforeJSON struct {
	To, Phone string
	Weight    int
}

func (crateBeforeJSON) Kind() string { return "crate" }

func (crateBeforeJSON) Options() midge.Options { return midge.Options{Encoding: midge.JSON} }

// crate has a renamed field that does not declare its earlier name.
type crate struct {
	To     string
	Number string
	Grams  int `midge:"was=Weight"`
}

func TestAFieldThatFitsNowhereIsLoggedOnce(t *testing.T) {
	for name, before := range map[string]any{
		"MessagePack": crateBefore{"ann", "1", 7}, "JSON": crateBeforeJSON{"ann", "1", 7},
	} {
		bubble(t, func(b *bench) {
			logger, lines := logged()
			b.runner = b.newRunner(b.store, midge.RunnerConfig{Logger: logger}, nil)
			ran := 0
			must(midge.Handle(b.runner, func(_ context.Context, p crate) error {
				if ran++; p.To != "ann" || p.Number != "" || p.Grams != 7 {
					t.Errorf("%s: got %+v", name, p)
				}
				return nil
			}))
			for range 1000 {
				_, err := b.client.Enqueue(b.ctx, before)
				must(err)
			}
			must(b.runner.SetConcurrency(1))
			go func() { b.done <- b.runner.Run(b.ctx) }()
			b.after(time.Second)
			got := lines("holds a field")
			if ran != 1000 || len(got) != 1 || !strings.Contains(got[0], "a field Phone that its job does not have") ||
				!strings.Contains(got[0], "`midge:\"was=Phone\"`") {
				t.Errorf("%s: %d tasks ran, logged %q; want one line about Phone", name, ran, got)
			}
		})
	}
}
