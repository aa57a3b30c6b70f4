package sampler

import (
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/storage"
)

// TestEachTotalChangesTheMark checks that a page is fetched again if only one total of a queue has changed: a
// task may crash, come back and wait again between two looks.
func TestEachTotalChangesTheMark(t *testing.T) {
	before := (&Queue{}).mark()
	totals := reflect.TypeFor[storage.Totals]()
	for i := range totals.NumField() {
		var q Queue
		reflect.ValueOf(&q.Totals).Elem().Field(i).SetInt(1)
		if q.mark() == before {
			t.Errorf("the total %s does not change the mark", totals.Field(i).Name)
		}
	}
}

// TestNoCallBeginsAfterOneThatFailed checks calls of which the third fails while the others take longer.
func TestNoCallBeginsAfterOneThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		err := Concurrently(1000, func(i int) error {
			calls.Add(1)
			if i == 2 {
				return errors.New("storage: unavailable")
			}
			time.Sleep(time.Second) // virtual
			return nil
		})
		if got := calls.Load(); err == nil || got > concurrency {
			t.Errorf("%d calls, %v; want an error after at most %d calls", got, err, concurrency)
		}
	})
}
