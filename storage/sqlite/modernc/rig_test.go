package modernc_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// queue is the queue of these tests.
const queue = "q"

// childEnv names the action that this program performs when a test has started it again.
const childEnv = "MIDGE_SQLITE_CHILD"

func TestMain(m *testing.M) {
	if action := os.Getenv(childEnv); action != "" {
		if err := child(action); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child performs an action for a test: its name and the file, separated by a space.
func child(action string) error {
	name, path, _ := strings.Cut(action, " ")
	ctx := context.Background()
	actions := map[string]func(context.Context, *side) error{"work": work, "write": write, "serve": serve, "persist": persist}
	s, err := sqlite.Open(ctx, sqlite.Config{Path: path, Driver: modernc.Driver, MinLease: time.Second})
	if err != nil {
		return err
	}
	return actions[name](ctx, &side{store: s, session: storage.NewSession(s, patience)})
}

// patience is how long a session repeats a call: a busy machine may hold a process up for longer than the five
// seconds of an application.
const patience = time.Minute

// side is the storage of one process.
type side struct {
	store   *sqlite.Storage
	session *storage.Session
}

// file returns the path for a file that does not exist yet.
func file(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "jobs.db")
}

// open opens a file with short leases.
func open(t testing.TB, path string) *side {
	t.Helper()
	return opened(t, sqlite.Config{Path: path, Driver: modernc.Driver, MinLease: time.Second})
}

func opened(t testing.TB, cfg sqlite.Config) *side {
	t.Helper()
	s, err := sqlite.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &side{store: s, session: storage.NewSession(s, patience)}
}

// database opens a file beside the storage, as an application does.
func database(t testing.TB, path, options string) *sql.DB {
	t.Helper()
	db, err := sql.Open(modernc.Driver, path+"?_pragma=busy_timeout(5000)"+options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execute(t testing.TB, path, text string, args ...any) {
	t.Helper()
	if _, err := database(t, path, "").ExecContext(t.Context(), text, args...); err != nil {
		t.Fatal(err)
	}
}

// job returns a task that is kept after it has completed.
func job(id string) storage.Insert {
	return storage.Insert{
		Ref: ref(id), Kind: "kind", Encoding: "json", Payload: []byte(`{"to":"someone"}`), CrashLimit: 100,
		Keep: storage.Keep{For: time.Hour},
	}
}

func ref(id string) storage.Ref { return storage.Ref{Queue: queue, ID: id} }

// insert enqueues tasks, each in a call of its own.
func (s *side) insert(ctx context.Context, ids ...string) error {
	for _, id := range ids {
		if _, err := s.session.ApplyOne(ctx, storage.Tx{Inserts: []storage.Insert{job(id)}}); err != nil {
			return err
		}
	}
	return nil
}

// addAlone enqueues a task in a call without a lane.
func (s *side) addAlone(ctx context.Context, id string) error {
	_, err := s.store.Apply(ctx, storage.Call{}, storage.Tx{Inserts: []storage.Insert{job(id)}})
	return err
}

func (s *side) claim(ctx context.Context, most int) (storage.Claimed, error) {
	return s.session.Claim(ctx, asking(most, time.Second))
}

// claimBefore is claim with a bound, as a runner sets it: leases that ended before it are recovered.
func (s *side) claimBefore(ctx context.Context, most int, before time.Time) (storage.Claimed, error) {
	req := asking(most, time.Second)
	req.RecoverBefore = before
	return s.session.Claim(ctx, req)
}

// claimLong is claim with leases that outlast the test.
func (s *side) claimLong(ctx context.Context, most int) (storage.Claimed, error) {
	return s.session.Claim(ctx, asking(most, time.Hour))
}

func asking(most int, lease time.Duration) storage.ClaimRequest {
	return storage.ClaimRequest{
		Runner: "runner", Queues: []storage.ClaimQueue{{Name: queue}}, Start: most, Lease: lease, Suspect: true,
	}
}

func (s *side) complete(ctx context.Context, fence storage.Fence) error {
	_, err := s.session.ApplyOne(ctx, storage.Tx{
		Settles: []storage.Settle{{Fence: fence, Outcome: storage.Complete}},
	})
	return err
}

// must fails the test unless err is nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// state returns the state of a task, "" if there is none.
func (s *side) state(t testing.TB, id string) storage.State {
	t.Helper()
	task, err := s.store.Task(t.Context(), ref(id))
	if err != nil {
		return ""
	}
	return task.State
}

// await checks a condition every few milliseconds until it holds, for a minute at most.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !condition(); {
		if <-tick.C; time.Now().After(deadline) {
			t.Fatalf("waited a minute, and still not: %s", what)
		}
	}
}
