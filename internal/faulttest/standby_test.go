//go:build unix

package faulttest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/testserver"
)

// standbyPair is a primary and its standby. Applications know the addresses of both.
type standbyPair struct {
	t                *testing.T
	primary, standby *testserver.PostgresServer
}

// handover is a way in which the standby takes over.
type handover struct {
	name        string
	synchronous bool // acknowledged writes are on the standby's disk
	lags        bool // the standby lacks the last acknowledged writes
	stays       bool // the old primary stays, with the connections to it
	returns     bool // the old primary returns as a standby at its address
	end         func(p *standbyPair)
}

var handovers = []handover{
	{name: "a crash with a synchronous standby", synchronous: true, end: (*standbyPair).crash},
	{name: "a crash with a standby that lags", lags: true, end: (*standbyPair).crash},
	{name: "a primary that becomes read-only", stays: true, end: (*standbyPair).turnReadOnly},
	{name: "a primary that becomes a standby", returns: true, end: (*standbyPair).stop},
}

func (p *standbyPair) crash() { must(p.t, p.primary.Kill()) }
func (p *standbyPair) stop()  { must(p.t, p.primary.Stop()) }

// turnReadOnly makes the primary refuse writes, also on open connections, and waits
// until the standby has everything that was written. It closes no connection.
func (p *standbyPair) turnReadOnly() {
	p.set("default_transaction_read_only = on")
	p.await("new transactions are read-only", "SELECT current_setting('default_transaction_read_only')", "on")
	now := list(p.t, p.primary, "SELECT clock_timestamp()::text")[0]
	p.await("the transactions before have ended, and the standby has it all", `SELECT count(*)::text FROM (
		SELECT 1 FROM pg_stat_activity WHERE backend_type = 'client backend' AND xact_start < $1::text::timestamptz
		UNION ALL SELECT 1 FROM pg_stat_replication WHERE replay_lsn < pg_current_wal_lsn()) AS unfinished`, "0", now)
}

// set changes a setting of the primary.
func (p *standbyPair) set(setting string) {
	p.t.Helper()
	must(p.t, p.primary.Exec(p.t.Context(), "ALTER SYSTEM SET "+setting))
	must(p.t, p.primary.Exec(p.t.Context(), "SELECT pg_reload_conf()"))
}

// await waits until a query of the primary returns the one value that is wanted.
func (p *standbyPair) await(what, sql, want string, args ...any) {
	p.t.Helper()
	testserver.Await(p.t, what, func() bool { return slices.Equal(list(p.t, p.primary, sql, args...), []string{want}) })
}

// swap makes the old primary a standby of the new one.
func (p *standbyPair) swap() {
	p.t.Helper()
	p.primary, p.standby = p.standby, p.primary
	must(p.t, p.standby.Follow(p.primary))
}

// TestAStandbyTakesOver promotes a standby under load, in each of the ways of handovers.
// Within ten seconds, runners and clients must work on the server that takes writes.
// They must leave the server that takes none, even if it keeps their connections open.
// Only acknowledged tasks that the standby cannot have may be lost.
func TestAStandbyTakesOver(t *testing.T) {
	require(t)
	testserver.Parallel(t)
	first := testserver.Postgres(t, testserver.PostgresOptions{})
	p := &standbyPair{t: t, primary: first, standby: testserver.Standby(t, first)}
	for round := range count(1, 5) {
		for _, way := range handovers {
			t.Run(fmt.Sprint(way.name, " ", round+1), func(t *testing.T) {
				p.t = t
				takeOver(t, p, way)
			})
			if t.Failed() {
				return
			}
			p.t = t
			if !way.returns {
				p.swap()
			}
		}
	}
}

func takeOver(t *testing.T, p *standbyPair, way handover) {
	t.Helper()
	if way.synchronous {
		p.set("synchronous_standby_names = '*'")
		p.await("the standby is synchronous", "SELECT 'yes' FROM pg_stat_replication WHERE sync_state = 'sync'", "yes")
	}
	f := newFleet(t, &server{kind: onePostgres, nodes: []node{p.primary, p.standby}})
	lease := 20 * time.Second
	if way.lags { // the standby may have a claim and lack its settle
		lease = 3 * time.Second
	}
	var runners []*worker
	for range 2 {
		runners = append(runners, f.start(workerConfig{Queues: []string{"q"}, Concurrency: 10, Lease: lease}))
	}
	f.awaitWhat("", workerReady, len(runners), 20*time.Second)
	load := f.load()
	f.awaitActive(time.Now(), runners...)
	safe := time.Now()
	if way.lags {
		safe = p.lag()
		f.awaitActive(time.Now(), runners...)
	}
	way.end(p)
	ended := time.Now()
	if way.lags {
		must(t, p.standby.Restart())
	}
	must(t, p.standby.Exec(t.Context(), "SELECT 1 / pg_promote()::int"))
	promoted := time.Now()
	if way.returns {
		p.swap()
	}
	took := f.awaitActive(promoted, runners...)
	if bound := machine.Stretch(10*time.Second, promoted); took > bound {
		t.Errorf("a runner worked %v after the promotion, want within %v", took, bound)
	}
	if way.stays && !poll(10*time.Second, func() bool { return backendsOf(t, p.primary) == 0 }) {
		t.Errorf("%d connections to the server that takes no writes are left, want none", backendsOf(t, p.primary))
	}
	load.end()
	awaitDrained(t, f.store, "q", 60*time.Second)
	h := f.history()
	var acknowledged, lost int
	if way.lags { // two histories: the second server lacks the end of the first history
		checkRuns(t, h.where(func(e *event) bool { return e.At.Before(ended) }))
		checkRuns(t, h.after(promoted))
		acknowledged, lost = f.checkLoad(func(e *event) bool { return e.At.After(safe) && e.At.Before(promoted) })
	} else {
		checkRuns(t, h)
		acknowledged, lost = f.checkLoad(none)
		if twice := logTwice(t, h); twice > 0 {
			t.Errorf("%d tasks were started more than once", twice)
		}
	}
	t.Logf("%d tasks acknowledged, %d lost; all runners worked %v after the promotion",
		acknowledged, lost, took.Round(time.Millisecond))
}

// lag stops the standby. The standby has everything that was acknowledged before the
// returned moment.
func (p *standbyPair) lag() time.Time {
	p.t.Helper()
	safe := time.Now()
	upTo := list(p.t, p.primary, "SELECT pg_current_wal_lsn()::text")[0]
	p.await("the standby has what was written", "SELECT 'yes' FROM pg_stat_replication WHERE flush_lsn >= '"+upTo+"'", "yes")
	must(p.t, p.standby.Stop())
	return safe
}
