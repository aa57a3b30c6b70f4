package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/midgetest"
)

func TestAnOrderIsPaidConfirmedAndReported(t *testing.T) {
	db, err := openOrders(t.Context(), filepath.Join(t.TempDir(), "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("R-7")) }))
	defer bank.Close()
	var mails []string
	s := &shop{db: db, bank: bank.URL, send: func(_ context.Context, to, text string) error {
		mails = append(mails, to+": "+text)
		return nil
	}}
	k := midgetest.New(t, midgetest.Config{Register: s.register})
	s.client = k.Inline()

	k.Work(ImportCatalogue{CSV: "tea,450\n"})
	got := httptest.NewRecorder()
	s.routes().ServeHTTP(got, httptest.NewRequest(http.MethodPost, "/orders?mail=ann&product=tea", nil))
	if got.Code != http.StatusCreated || !strings.Contains(got.Body.String(), `"receipt":"R-7"`) {
		t.Errorf("got %d %s, want 201 and the receipt R-7", got.Code, got.Body)
	}
	if len(mails) != 1 || !strings.HasPrefix(mails[0], "ann: Thank you") {
		t.Errorf("at once %q was mailed, want the confirmation", mails)
	}
	k.Until(73 * time.Hour)
	all := strings.Join(mails, "\n")
	for _, want := range []string{"owner@shop.example: 1 orders, 4.50 EUR", "ann: How do you like your tea?"} {
		if strings.Count(all, want) != 1 {
			t.Errorf("within three days this was mailed:\n%s\nwant once %q", all, want)
		}
	}
}

func TestADeclinedCardIsChargedOnceMoreAtMost(t *testing.T) {
	db, err := openOrders(t.Context(), filepath.Join(t.TempDir(), "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	status, keys := http.StatusServiceUnavailable, map[string]bool{}
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys[r.Header.Get("Idempotency-Key")] = true
		w.WriteHeader(status)
	}))
	defer bank.Close()
	s := &shop{db: db, bank: bank.URL}
	k := midgetest.New(t, midgetest.Config{Register: s.register})
	s.client = k.Client()

	k.Work(ImportCatalogue{CSV: catalogue})
	if _, err := s.place(t.Context(), order{Number: "7", Mail: "ann", Product: "tea"}); err != nil {
		t.Fatal(err)
	}
	charge := midgetest.RequireJob(t, k.Client(), ChargeCard{Order: "7"},
		midgetest.With(midge.To("payments"), midge.Timeout(5*time.Second)))
	if failed := k.WorkTask(charge.Ref); failed.Outcome != midge.OutcomeFailed || failed.RetryIn != 2*time.Second {
		t.Errorf("without the bank it %s (%v), retry in %v; want it to fail, retry in 2s", failed.Outcome, failed.Err, failed.RetryIn)
	}
	status = http.StatusPaymentRequired
	if declined := k.WorkTask(charge.Ref); declined.Outcome != midge.OutcomeDiscarded || len(keys) != 1 {
		t.Errorf("with a bad card it %s (%v) under %d keys; want it discarded, one key", declined.Outcome, declined.Err, len(keys))
	}
	midgetest.RequireNone[ConfirmOrder](t, k.Client())

	for range 2 { // two clicks
		if _, err := s.client.Enqueue(t.Context(), ChargeCard{Order: "7"}); err != nil {
			t.Fatal(err)
		}
	}
	midgetest.RequireEnqueued[ChargeCard](t, k.Client())
}

func TestAnImportGoesOnWhereItFailed(t *testing.T) {
	db, err := openOrders(t.Context(), filepath.Join(t.TempDir(), "shop.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	s := &shop{db: db}
	k := midgetest.New(t, midgetest.Config{Register: s.register})
	var rows strings.Builder
	for i := range 25 {
		_, _ = fmt.Fprintf(&rows, "product %d,100\n", i)
	}
	_, err = db.ExecContext(t.Context(), `CREATE TRIGGER bad BEFORE INSERT ON products WHEN new.name = 'product 15'
		BEGIN SELECT RAISE(ABORT, 'no space'); END`)
	if err != nil {
		t.Fatal(err)
	}
	failed := k.Work(ImportCatalogue{CSV: rows.String()})
	var done imported
	if failed.Checkpoint(&done); failed.Outcome != midge.OutcomeFailed || done.Rows != 10 {
		t.Errorf("it %s (%v) behind row %d, want it to fail behind row 10", failed.Outcome, failed.Err, done.Rows)
	}
	if _, err := db.ExecContext(t.Context(), "DROP TRIGGER bad; DELETE FROM products"); err != nil {
		t.Fatal(err)
	}
	again := k.WorkTask(failed.Task.Ref)
	if again.Progress(&done); again.Outcome != midge.OutcomeSucceeded || done.Rows != 25 {
		t.Errorf("it %s (%v) at row %d, want it to succeed at row 25", again.Outcome, again.Err, done.Rows)
	}
	var written int
	err = db.QueryRowContext(t.Context(), "SELECT count(*) FROM products").Scan(&written)
	if err != nil || written != 15 {
		t.Errorf("the second attempt wrote %d rows, %v; want the 15 behind the checkpoint", written, err)
	}
}

func TestThereIsNoOrderWithoutItsCharge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	db, err := openOrders(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	store, within, err := openJobs(t.Context(), "", path, db)
	if err != nil {
		t.Fatal(err)
	}
	client, err := midge.NewClient(store, midge.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{db: db, client: client, within: within}
	if err := s.offer(t.Context(), []string{"tea", "450"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.place(t.Context(), order{Number: "7", Mail: "ann", Product: "tea"}); err != nil {
		t.Fatal(err)
	}
	midgetest.RequireJob(t, client, ChargeCard{Order: "7"})
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.place(t.Context(), order{Number: "8", Mail: "ann", Product: "tea"}); err == nil {
		t.Error("an order was placed without its charge")
	}
	if _, err := s.find(t.Context(), "8"); !errors.Is(err, errUnknown) {
		t.Errorf("order 8 is there, %v, want it rolled back", err)
	}
}

func TestThisVersionReadsWhatWaits(t *testing.T) {
	midgetest.Golden(t, "testdata/jobs.json", new(shop).register)
}

func TestTheShopServes(t *testing.T) {
	for name, where := range map[string]func(*testing.T) config{
		"one SQLite file": func(t *testing.T) config {
			return config{db: filepath.Join(t.TempDir(), "shop.db")}
		},
		"SQLite and memory": func(t *testing.T) config {
			return config{db: filepath.Join(t.TempDir(), "shop.db"), jobs: "memory:"}
		},
		"SQLite and Redis": func(t *testing.T) config {
			testserver.Require(t)
			return config{db: filepath.Join(t.TempDir(), "shop.db"), jobs: testserver.Redis(t).URL()}
		},
		"PostgreSQL": func(t *testing.T) config {
			testserver.RequirePostgres(t)
			return config{db: testserver.Postgres(t, testserver.PostgresOptions{}).URL()}
		},
	} {
		t.Run(name, func(t *testing.T) { testServing(t, where(t)) })
	}
}

// testServing runs a shop, orders three times, and checks its pages.
func testServing(t *testing.T, cfg config) {
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("R-7")) }))
	defer bank.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + listener.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	cfg.bank, cfg.customers, cfg.token = bank.URL, 50*time.Millisecond, rand.Text()
	go func() { ended <- serve(ctx, cfg, listener, slog.New(slog.DiscardHandler)) }()
	for range 3 {
		testserver.Await(t, "an order is placed", func() bool { // not before the catalogue is uploaded
			res, err := http.PostForm(base+"/orders", url.Values{"mail": {"ann"}, "product": {"tea"}})
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			return res.StatusCode == http.StatusCreated
		})
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	get := func(path string) (status int, body string) {
		res, err := browser.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}
	const charged = `midge_attempts_total{kind="charge_card",outcome="succeeded",queue="payments"}`
	testserver.Await(t, "a card is charged", func() bool {
		_, body := get("/metrics")
		return strings.Contains(body, charged)
	})
	for _, page := range [][2]string{
		{"/", "orders were paid"},
		{"/readyz", "ok"},
		{"/healthz", "ok"},
		{"/metrics", charged},
		{"/midge/queues", "This dashboard has no users."},
		{"/midge/login?token=" + cfg.token, "local · admin"},
	} {
		path, want := page[0], page[1]
		status, body := get(path)
		if status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("GET %s: %d, %s; want 200 and %q", path, status, body, want)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("serve returned %v", err)
	}
}

// The orders of one user are no business of the other users of the machine.
func TestTheFileOfTheShopBelongsToItsUser(t *testing.T) {
	home := t.TempDir()
	for _, name := range []string{"HOME", "XDG_CACHE_HOME", "LocalAppData"} {
		t.Setenv(name, home)
	}
	for range 2 { // it may be there already
		path, err := ownFile()
		if err != nil {
			t.Fatal(err)
		}
		if rest, err := filepath.Rel(home, path); err != nil || strings.HasPrefix(rest, "..") {
			t.Fatalf("the file is %s, want it in the cache of the user, %s", path, home)
		}
		db, err := openOrders(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		for name, others := range map[string]os.FileMode{path: 0o077, filepath.Dir(path): 0o077} {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			if runtime.GOOS != "windows" && info.Mode().Perm()&others != 0 {
				t.Errorf("%s has the mode %v, want it for its user alone", name, info.Mode())
			}
		}
	}
	for _, name := range []string{"HOME", "XDG_CACHE_HOME", "LocalAppData"} {
		t.Setenv(name, "")
	}
	if _, err := ownFile(); err == nil || !strings.Contains(err.Error(), "-db names the file") {
		t.Errorf("without a home: got %v, want to be told of -db", err)
	}
}
