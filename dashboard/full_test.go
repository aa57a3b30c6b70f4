package dashboard_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/midgehq/midge/access"
	"github.com/midgehq/midge/dashboard"
	"github.com/midgehq/midge/internal/ledger"
	"github.com/midgehq/midge/internal/scene"
	"github.com/midgehq/midge/storage"
)

// crowded is a storage that refuses inserts with an error, nil for none.
type crowded struct {
	storage.Storage

	refusal atomic.Pointer[error]
}

func (c *crowded) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	for _, tx := range txs {
		if err := c.refusal.Load(); err != nil && len(tx.Inserts) > 0 {
			return nil, *err
		}
	}
	return c.Storage.Apply(ctx, call, txs...)
}

func (c *crowded) Describe(ctx context.Context) (storage.Description, error) {
	d, err := c.Storage.Describe(ctx)
	if refusal := c.refusal.Load(); refusal != nil {
		d.Full, d.FullSince = "used memory > maxmemory", d.Now.Add(-time.Minute)
	}
	return d, err
}

// actionsOf returns the actions of a person in the audit, with their outcomes.
func actionsOf(t *testing.T, store storage.Storage, who string) (actions []string) {
	t.Helper()
	all, _, err := ledger.NewAudit(store).List(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.Who == who {
			actions = append(actions, e.Action+" "+e.Outcome)
		}
	}
	return actions
}

// TestAFullStorageLetsPeopleMakeRoom checks that delete, cancel and resume go on although the audit takes no
// record, that the dialogs and the log report that, and that the records are written once there is room.
// Another action, and any other failure of the audit, is refused.
func TestAFullStorageLetsPeopleMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 5, 17, 12, 0, 0, 0, time.UTC))) // virtual: the audit needs a later year
		sc, err := scene.Open(t.Context(), "night", 0)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		cfg := as(access.Admin)
		cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		store := &crowded{Storage: sc.Store}
		full, away := storage.ErrFull, storage.ErrUnavailable
		store.refusal.Store(&full)
		h, err := dashboard.Handler(store, cfg)
		if err != nil {
			t.Fatal(err)
		}
		s := &site{t, sc, h, cfg}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); h.Run(ctx) }()
		defer func() { stop(); <-ended }()

		s.shows("/", "The storage is full", "Used memory &gt; maxmemory.")
		dead := s.list("mail", storage.Dead)
		s.shows("/action?do=delete&ref="+dead[0], "until then it waits in the memory of this process")
		for _, form := range [][]string{{"do", "delete", "ref", dead[0]}, {"do", "resume", "queue", "payments"}} {
			if code, page := s.post("/action", form...); code != http.StatusOK {
				t.Errorf("%v: %d\n%s", form, code, page)
			}
		}
		if got := s.list("mail", storage.Dead); len(got) != len(dead)-1 {
			t.Errorf("%d tasks are dead, want one deleted of %d", len(got), len(dead))
		}
		for _, want := range []string{"who=ann action=delete", dead[0], "changed=1", "who=ann action=resume queue=payments"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, log.String())
			}
		}
		if code, page := s.post("/action", "do", "pause", "queue", "mail"); code != http.StatusServiceUnavailable ||
			!strings.Contains(page, "The storage is full and refuses this action. Delete tasks to make room.") {
			t.Errorf("a pause in a full storage: %d\n%s", code, page)
		}
		store.refusal.Store(&away)
		if code, _ := s.post("/action", "do", "delete", "ref", dead[1]); code != http.StatusServiceUnavailable {
			t.Errorf("a delete without an audit: %d, want it refused", code)
		}
		store.refusal.Store(nil)
		time.Sleep(time.Minute) // virtual
		kept := actionsOf(t, sc.Store, "ann")
		slices.Sort(kept) // the clock of the bubble stands still between them
		if got := strings.Join(kept, ", "); got != "delete done, resume done" {
			t.Errorf("the audit has %q, want both actions", got)
		}
	})
}

// TestTheLogHasNoFilterByAValue checks that the log, which many may read, does not have the parameters and headers by
// which somebody has chosen tasks. It has other filters: the log has refs, kinds and errors of tasks anyway.
func TestTheLogHasNoFilterByAValue(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		sc, err := scene.Open(t.Context(), "night", 0)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		cfg := as(access.Admin)
		cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
		store := &crowded{Storage: sc.Store}
		full := storage.ErrFull
		store.refusal.Store(&full)
		h, err := dashboard.Handler(store, cfg)
		if err != nil {
			t.Fatal(err)
		}
		s := &site{t, sc, h, cfg}
		for filter, want := range map[string]string{
			"state:dead params.email:ann@x.org":         "filter=***",
			"state:dead kind:k -header.email:ann@x.org": "filter=***",
			"state:running params.email:ann@x.org":      "filter=***",
			"state:dead kind:none":                      `filter="state:dead kind:none"`,
		} {
			for _, do := range []string{"delete", "cancel"} {
				log.Reset()
				s.post("/action", "do", do, "all", "1", "filter", filter, "count", "1")
				if got := log.String(); strings.Contains(got, "ann@x.org") || !strings.Contains(got, want) {
					t.Errorf("%s of %s: the log has %q, want %s", do, filter, got, want)
				}
			}
		}
	})
}
