package main

import (
	"bytes"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/examples/internal/store"
)

func TestQuickstart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened, err := store.Open(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		var out bytes.Buffer
		if err := run(t.Context(), opened, &out); err != nil {
			t.Fatal(err, "\n", out.String())
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("took %v, want at most 10s", took)
		}
		for _, want := range []string{
			`zoe in 2s, unique: (\S+); enqueued again: \S+, was there already: true`,
			`1\+2\+3\+4 = 10`,
			`charge_card \S+ failed: the bank does not answer, retry 1 of 20 in`,
			`charge_card \S+ failed: the bank does not answer, retry 2 of 20 in`,
			`charge_card \S+ succeeded`,
			`import_file \S+ is dead, out of retries after 1: prices.csv ends in the middle of a line`,
			`requeued\n(.*\n)*.*import_file \S+ succeeded`,
			`tick \S+ succeeded`,
			`0 waiting, 0 pending, 0 scheduled, 0 retry, 0 dead, 3 completed and kept, 1 schedule`,
			`4 attempts failed, 1 died, 1 requeued`,
		} {
			if !regexp.MustCompile(want).Match(out.Bytes()) {
				t.Errorf("got no line like %s in\n%s", want, out.String())
			}
		}
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	})
}
