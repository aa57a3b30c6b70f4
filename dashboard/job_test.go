package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/storage"
)

// TestSlowActsHoldUpNoActOnATask checks that further slow acts are refused, but acts on named tasks are done.
func TestSlowActsHoldUpNoActOnATask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))) // virtual: the audit begins in 2020
		tasks := []storage.Insert{{Ref: theTask, Delay: time.Hour}}
		for i := range 100 {
			tasks = append(tasks, storage.Insert{Ref: storage.Ref{Queue: "slow", ID: fmt.Sprint(i)}, Delay: time.Hour})
		}
		s, _ := inserted(t, as(access.Admin), tasks...)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); s.Run(ctx) }()
		slow := func() (int, string) {
			return s.post("/act", "do", "requeue", "all", "1", "queue", "slow", "state", "scheduled", "count", "50", "rate", "1")
		}
		for range 8 {
			if code, _ := slow(); code != http.StatusOK {
				t.Fatalf("a slow act: %d", code)
			}
		}
		if code, page := slow(); code != http.StatusServiceUnavailable || !strings.Contains(page, "Too many acts") {
			t.Errorf("a slow act beside eight others: %d, want 503", code)
		}
		if code, page := s.post("/act", "do", "requeue", "ref", "mail/a"); code != http.StatusOK ||
			!strings.Contains(page, "1 task requeued") {
			t.Errorf("an act on a task beside slow acts: %d, want it done", code)
		}
		if code, _ := s.post("/act", "do", "cancel", "ref", "slow/99", "rate", "1"); code != http.StatusServiceUnavailable {
			t.Errorf("a slow act on a named task: %d, want 503", code)
		}
		stop()
		<-ended
	})
}
