package imports

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// sendMail is a job of River.
type sendMail struct {
	To string `json:"to"`
	N  int64  `json:"n"`
}

func (sendMail) Kind() string { return "email_send" }

// resize is a job that the table of kinds does not name.
type resize struct{}

func (resize) Kind() string { return "image_resize" }

// shared is a database that a real River and a storage share.
type shared struct {
	t      *testing.T
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	store  *postgres.Storage
	conn   *pgx.Conn
}

func newShared(t *testing.T) *shared {
	t.Helper()
	testserver.RequirePostgres(t)
	server := testserver.Postgres(t, testserver.PostgresOptions{})
	pool, err := pgxpool.New(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	s := &shared{t: t, pool: pool}
	if s.client, err = river.NewClient(driver, &river.Config{}); err != nil {
		t.Fatal(err)
	}
	if err := postgres.Migrate(t.Context(), postgres.Config{URL: server.URL()}); err != nil {
		t.Fatal(err)
	}
	if s.store, err = postgres.Open(t.Context(), postgres.Config{URL: server.URL()}); err != nil {
		t.Fatal(err)
	}
	if s.conn, err = pgx.Connect(t.Context(), server.URL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.store.Close(), s.conn.Close(context.WithoutCancel(t.Context()))); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *shared) river() *River {
	return &River{Conn: s.conn, Store: s.store, From: "default", To: "letters", Kinds: Kinds{"email_send": "send_mail"}}
}

func (s *shared) insert(args river.JobArgs, opts *river.InsertOpts) {
	s.t.Helper()
	if _, err := s.client.Insert(s.t.Context(), args, opts); err != nil {
		s.t.Fatal(err)
	}
}

// jobs counts the jobs of River.
func (s *shared) jobs() (n int) {
	s.t.Helper()
	if err := s.pool.QueryRow(s.t.Context(), "SELECT count(*) FROM river_job").Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *shared) tasks(state storage.State) (tasks []storage.Task) {
	s.t.Helper()
	for t, err := range storage.Each(s.t.Context(), s.store, "letters", state) {
		if err != nil {
			s.t.Fatal(err)
		}
		tasks = append(tasks, t)
	}
	return tasks
}

func TestAJobOfRiverKeepsWhatItSays(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	soon := time.Now().Add(time.Hour).Truncate(time.Second)
	s.insert(sendMail{To: "later"}, &river.InsertOpts{Priority: 4})
	s.insert(sendMail{To: "ann", N: 9007199254740993}, &river.InsertOpts{MaxAttempts: 8, Tags: []string{"one", "two"}, Metadata: []byte(`{"trace":"7"}`)})
	s.insert(sendMail{To: "soon"}, &river.InsertOpts{ScheduledAt: soon})
	s.insert(resize{}, nil)
	plan, err := s.river().Plan(t.Context())
	if moved, left := plan.Tasks(); err != nil || moved != 3 || left != 1 || s.jobs() != 4 {
		t.Errorf("the plan is %+v, %v; want three to move, one to leave, and nothing changed", plan, err)
	}
	report, err := s.river().Run(t.Context())
	if moved, left := report.Tasks(); err != nil || moved != 3 || left != 1 || s.jobs() != 1 {
		t.Fatalf("the report is %+v, %v, and River has %d jobs; want three moved and one left", report, err, s.jobs())
	}
	waiting, scheduled := s.tasks(storage.Waiting), s.tasks(storage.Scheduled)
	if len(waiting) != 2 || len(scheduled) != 1 || !scheduled[0].Due.Equal(soon) {
		t.Fatalf("%v wait and %v are scheduled, want two, and one for %v", waiting, scheduled, soon)
	}
	var args sendMail
	first := waiting[0]
	if err := json.Unmarshal(first.Payload, &args); err != nil || args != (sendMail{To: "ann", N: 9007199254740993}) {
		t.Errorf("the parameters of the first are %s, %v", first.Payload, err)
	}
	if first.Kind != "send_mail" || first.ID != "river-2" || first.MaxRetries != 7 || first.Priority != 0 || waiting[1].Priority != -3 ||
		first.Headers["river.tags"] != "one,two" || first.Headers["river.metadata"] == "" {
		t.Errorf("the first is %+v with headers %v", first, first.Headers)
	}
}

func TestAKilledImportOfRiverDoublesNothing(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	var many []river.InsertManyParams
	for i := range 2*chunkTasks + 30 {
		many = append(many, river.InsertManyParams{Args: sendMail{N: int64(i)}})
	}
	if _, err := s.client.InsertMany(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"inserted", "deleted", ""} {
		r, n := s.river(), 0
		r.step = func(at string) error {
			if n++; at == step && n > 2 { // in the second chunk
				return errEnded
			}
			return nil
		}
		if _, err := r.Run(t.Context()); (err == nil) != (step == "") {
			t.Fatalf("killed when it was %s: %v", step, err)
		}
		if here, there := len(s.tasks(storage.Waiting)), s.jobs(); here+there != len(many) || here == 0 {
			t.Errorf("killed when it was %q: %d tasks and %d jobs, want %d together", step, here, there, len(many))
		}
	}
	if s.jobs() != 0 {
		t.Errorf("%d jobs are left", s.jobs())
	}
	seen := make(map[string]bool)
	for _, task := range s.tasks(storage.Waiting) {
		if seen[string(task.Payload)] {
			t.Errorf("%s came twice", task.Payload)
		}
		seen[string(task.Payload)] = true
	}
}

func TestAJobWhoseIDIsTakenStaysWithRiver(t *testing.T) {
	t.Parallel()
	s := newShared(t)
	s.insert(sendMail{To: "ann"}, nil)
	s.insert(sendMail{To: "bob"}, nil)
	_, err := storage.NewSession(s.store, 0).ApplyOne(t.Context(), storage.Tx{Inserts: []storage.Insert{{
		Ref: storage.Ref{Queue: "letters", ID: "river-1"}, Kind: "other", Encoding: "json", Payload: []byte("{}"), CrashLimit: 3,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	report, err := s.river().Run(t.Context())
	if moved, left := report.Tasks(); err != nil || moved != 1 || left != 1 || s.jobs() != 1 {
		t.Errorf("the report is %+v, %v; want one moved and one left", report, err)
	}
}
