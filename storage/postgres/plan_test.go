package postgres_test

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// patience bounds the calls of thousands of steps whose plans the server logs, on a machine that is busy.
const patience = 5 * time.Minute

// TestPlansNeedNoStatistics makes every plan while the planner takes the tables for empty, fills the
// tables, and checks the reads of the server then: no step may read a whole table.
func TestPlansNeedNoStatistics(t *testing.T) {
	testserver.RequirePostgres(t)
	server := testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true, Config: []string{
		"session_preload_libraries = 'auto_explain'", "auto_explain.log_min_duration = 0",
		"auto_explain.log_nested_statements = on", "auto_explain.log_analyze = on", "autovacuum = off",
	}})
	cfg := fresh(t, postgres.Config{URL: server.URL()})
	store, _ := opened(t, cfg)
	session := storage.NewSession(store, patience)
	for range 8 { // until every connection has its plans
		everything(t, session, 3)
	}
	if err := server.Exec(t.Context(), "VACUUM ANALYZE"); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		everything(t, session, 3)
	}
	everything(t, session, 3000)
	limit := storage.Limit{Partition: storage.PartitionLimit{
		Concurrency: 2, Rate: storage.Rate{N: 5, Per: time.Second},
	}}
	set := storage.Settings{Limit: &storage.OperatorLimit{On: true, Limit: limit}}
	err := session.Configure(t.Context(), "q", set)
	if err != nil {
		t.Fatal(err)
	}
	everything(t, session, 3000)
	amongManyLanes(t, server, cfg)
	lines := strings.Split(server.Log(), "\n")
	for i, line := range lines {
		switch {
		case scans.MatchString(line):
			t.Errorf("a step reads a whole table: %s", line)
		case sorts.MatchString(line):
			t.Errorf("a step sorts more than it gives: %s", strings.Join(lines[max(i-6, 0):i+3], "\n"))
		case strings.HasSuffix(line, "JIT:"):
			t.Errorf("the server compiled the plan of a step: %s", strings.Join(lines[max(i-8, 0):i+4], "\n"))
		case passes.MatchString(line) && !mayPass.MatchString(lines[i-1]):
			t.Errorf("a step passes over rows: %s %s", lines[i-1], line)
		}
		if t.Failed() {
			return
		}
	}
}

var (
	scans  = regexp.MustCompile(`Seq Scan on (tasks|ended|sides|keys|lanes) .*loops=[1-9]`)
	sorts  = regexp.MustCompile(`^\s*Sort Method: top-N heapsort`)
	passes = regexp.MustCompile(`Rows Removed by (Join )?Filter: \d{4,}`)
	// mayPass matches the filters of an argument, and the filters of the deltas, which have no index and are folded
	// soon. The deltas of locked lines are appended again. The fold of 2,000 deltas joins them with the queues. Every ten
	// seconds the sweep passes over the partitions without tasks that still rest for their rate.
	mayPass = regexp.MustCompile(`Filter: \(SubPlan|^\s*Filter: \(.*\bn <> 0\b|Filter: \(\(tasks <= 0\) AND |` +
		`Join Filter: \(q\.queue = s|Filter: \(\(queue = \S+\) AND \(counter = \d+\)\)`)
)

// everything carries out every kind of step, with n tasks of each sort.
func everything(t *testing.T, session *storage.Session, n int) {
	t.Helper()
	must := func(applied []storage.Applied, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range applied {
			if a.Err != nil {
				t.Fatal(a.Err)
			}
		}
	}
	plain, rest := insertTxs(n), insertTxs(n)
	for i := range rest {
		in := &rest[i].Inserts[0]
		in.Unique = storage.Unique{Key: in.Ref.ID, Mode: storage.UniqueLife}
		in.Keep.For = time.Hour
		if i%2 == 0 {
			in.Delay = time.Millisecond
		}
		if i%4 < 2 {
			in.Partition = fmt.Sprint("p", i)
		}
	}
	must(session.Apply(t.Context(), plain...))
	must(session.Apply(t.Context(), rest...))
	list(t, session, storage.TasksQuery{Queue: "q", State: storage.Waiting})
	begun := time.Now()
	for left := 2 * n; left > 0; {
		if time.Since(begun) > patience {
			t.Fatalf("%d of %d tasks are left, and are not found", left, 2*n)
		}
		claimed, err := session.Claim(t.Context(), claimOf(storage.MaxClaim))
		if err != nil {
			t.Fatal(err)
		}
		left -= len(claimed.Fences)
		x, txs := endings(claimed.Fences)
		if _, err := session.Extend(t.Context(), x); err != nil {
			t.Fatal(err)
		}
		must(session.Apply(t.Context(), txs...))
	}
	list(t, session, storage.TasksQuery{Queue: "q", State: storage.Completed})
	list(t, session, storage.TasksQuery{Queue: "q", State: storage.Completed, Newest: true})
	if _, err := session.DeleteAll(t.Context(), "q", storage.Dead, nil); err != nil {
		t.Fatal(err)
	}
}

// list reads some pages.
func list(t *testing.T, session *storage.Session, query storage.TasksQuery) {
	t.Helper()
	for range 3 {
		page, err := session.Storage().Tasks(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		query.After = page.Next
	}
}

// amongManyLanes has sessions insert side by side, so that their calls share flushes, while the
// storage remembers many other lanes.
func amongManyLanes(t *testing.T, server *testserver.PostgresServer, cfg postgres.Config) {
	t.Helper()
	if err := server.Exec(t.Context(), `INSERT INTO `+cfg.Schema+`.lanes (lane, opened, seq, base, verb, outcome)
		SELECT decode(md5(n::text), 'hex'), (date_part('epoch', now()) * 1000000)::int8, 1, 1, 'a', ''
		FROM generate_series(1, 5000) n`); err != nil {
		t.Fatal(err)
	}
	store, _ := opened(t, cfg)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			session := storage.NewSession(store, patience)
			for range 20 {
				if _, err := session.Apply(t.Context(), insertTxs(1)...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// endings returns extensions of leases, and settles with every outcome, most of them completions.
func endings(fences []storage.Fence) (x storage.ExtendRequest, txs []storage.Tx) {
	outcomes := []storage.Outcome{storage.Complete, storage.Bury, storage.Fail, storage.Cancel}
	for i, f := range fences {
		x.Leases = append(x.Leases, storage.Extension{Fence: f, For: time.Minute, Started: true})
		s := storage.Settle{Fence: f, Outcome: storage.Complete}
		if i < len(outcomes) {
			s.Outcome = outcomes[i]
		}
		if s.Outcome == storage.Fail {
			s.Delay = time.Hour
		}
		txs = append(txs, storage.Tx{Settles: []storage.Settle{s}})
	}
	return x, txs
}
