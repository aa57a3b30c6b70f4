package dashboard_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/vitals"
	"github.com/midgehq/midge/storage"
)

// TestMoreKindsThanThePageShowsAreCounted checks the history of more kinds than a page lists.
func TestMoreKindsThanThePageShowsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "calm", dashboard.Config{})
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() { s.Run(ctx) })
		var v vitals.Vitals
		for i := range 57 {
			v.Kinds = append(v.Kinds, vitals.Kind{Name: fmt.Sprintf("kind_%02d", i)})
		}
		for range 3 {
			for i := range v.Kinds {
				v.Kinds[i].Runs.Add(40 * time.Millisecond)
			}
			info := storage.RunnerInfo{ID: "r", Host: "app", Queues: []string{"mail"}, Concurrency: 4, For: time.Hour, Vitals: v.Encode()}
			if _, err := s.Session.Extend(t.Context(), storage.ExtendRequest{Runner: info}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute) // virtual
		}
		s.shows("/metrics", "kind_00", "and 7 more kinds")
		stop()
		all.Wait()
	})
}
