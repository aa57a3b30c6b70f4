package dashboard_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
)

// inserted returns a dashboard of a storage with tasks.
func inserted(t *testing.T, cfg dashboard.Config, tasks ...storage.Insert) (*site, *memory.Storage) {
	t.Helper()
	return insertedWithin(t, storage.Limits{}, cfg, tasks...)
}

// insertedWithin returns a dashboard of a storage with limits and tasks.
func insertedWithin(
	t *testing.T, limits storage.Limits, cfg dashboard.Config, tasks ...storage.Insert,
) (*site, *memory.Storage) {
	t.Helper()
	store, err := memory.Open(memory.Config{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	for i := range tasks {
		tasks[i].Kind, tasks[i].CrashLimit = "k", 3
		if tasks[i].Encoding == "" {
			tasks[i].Encoding, tasks[i].Payload = "json", []byte("{}")
		}
		if _, err := storage.NewSession(store, 0).ApplyOne(t.Context(), storage.Tx{Inserts: tasks[i : i+1]}); err != nil {
			t.Fatal(err)
		}
	}
	h, err := dashboard.Handler(store, admitting(cfg))
	if err != nil {
		t.Fatal(err)
	}
	return &site{t: t, Dashboard: h}, store
}

// TestMomentsOfAllYearsAreShown checks moments written by others that are further from now than a duration
// reaches.
func TestMomentsOfAllYearsAreShown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, year := range []string{"0001", "1500", "2199"} {
			moment := year + "-01-02T00:00:00Z"
			at, err := time.Parse(time.RFC3339, moment)
			if err != nil {
				t.Fatal(err)
			}
			s, _ := inserted(t, dashboard.Config{},
				storage.Insert{
					Ref: storage.Ref{Queue: "mail", ID: "a"},
					Headers: map[string]string{
						storage.DeadlineHeader: moment, storage.TickHeader: moment, storage.DueHeader: moment,
					},
				},
				storage.Insert{
					Ref:    storage.Ref{Queue: "mail", ID: storage.CursorPrefix + "a"},
					Cursor: &storage.Cursor{Next: at, Declaration: "{}"},
				},
				storage.Insert{
					Ref: storage.Ref{Queue: ledger.AuditQueue, ID: "a"}, Encoding: "json", At: time.Now().AddDate(50, 0, 0),
					Payload: []byte(`{"who":"ann","action":"pause","at":"` + moment + `","outcome":"done"}`),
				})
			s.shows("/audit", "pause")
			for _, path := range []string{"/", "/r/mail/a", "/r/mail/cursor.a", "/schedules", "/tasks", "/queues/mail", "/search?q=a"} {
				if w := s.do(request(http.MethodGet, path, "")); w.Code >= http.StatusInternalServerError {
					t.Errorf("GET %s with moments of the year %s: %d", path, year, w.Code)
				}
			}
		}
	})
}
