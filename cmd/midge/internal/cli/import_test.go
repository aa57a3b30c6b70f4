package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/midgehq/midge/cmd/midge/internal/connect"
	"github.com/midgehq/midge/cmd/midge/internal/show"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// asynqs is a client of a real asynq.
type asynqs struct {
	t      *testing.T
	url    string
	client *asynq.Client
	look   *asynq.Inspector
}

func newAsynq(t *testing.T, server *testserver.Server) *asynqs {
	t.Helper()
	at := asynq.RedisClientOpt{Addr: server.Addr()}
	p := &asynqs{t: t, url: server.URL(), client: asynq.NewClient(at), look: asynq.NewInspector(at)}
	t.Cleanup(func() {
		for _, end := range []func() error{p.client.Close, p.look.Close} {
			if err := end(); err != nil {
				t.Error(err)
			}
		}
	})
	return p
}

// fill enqueues into a queue 260 tasks that can move, of which five are scheduled, and two tasks that
// cannot. It archives one more task.
func (p *asynqs) fill(queue string) {
	p.t.Helper()
	add := func(typ, id, payload string, opts ...asynq.Option) {
		_, err := p.client.Enqueue(asynq.NewTask(typ, []byte(payload)), append(opts, asynq.Queue(queue), asynq.TaskID(id))...)
		if err != nil {
			p.t.Fatal(err)
		}
	}
	for i := range 255 {
		add("email:send", fmt.Sprintf("t%03d", i), fmt.Sprintf(`{"n":%d}`, i))
	}
	for i := range 5 {
		add("email:send", fmt.Sprintf("s%d", i), `{}`, asynq.ProcessIn(time.Hour))
	}
	add("image:resize", "x1", `{}`)
	add("email:send", "x2", "no JSON")
	add("email:send", "dead", `{}`)
	if err := p.look.ArchiveTask(queue, "dead"); err != nil {
		p.t.Fatal(err)
	}
}

// has returns the sizes of a queue of asynq as text.
func (p *asynqs) has(queue string) string {
	p.t.Helper()
	q, err := p.look.GetQueueInfo(queue)
	if err != nil {
		p.t.Fatal(err)
	}
	return fmt.Sprintf("pending %d scheduled %d archived %d paused %v", q.Pending, q.Scheduled, q.Archived, q.Paused)
}

// on returns a rig whose commands open the storage of a URL.
func on(t *testing.T, url string) *rig {
	t.Helper()
	r := &rig{t: t, real: true, env: map[string]string{connect.EnvStorage: url, "XDG_CONFIG_HOME": t.TempDir()}}
	r.ok("migrate")
	return r
}

// says runs a line that has to exit with a code and to write a text.
func (r *rig) says(code int, want, line string) answer {
	r.t.Helper()
	got := r.run(line)
	if got.code != code || !strings.Contains(got.out+got.err, want) {
		r.t.Errorf("midge %s: got %d, %s%s\nwant %d and %q", line, got.code, got.out, got.err, code, want)
	}
	return got
}

func TestAsynqIsImportedIntoEveryStorage(t *testing.T) {
	t.Parallel()
	testserver.Require(t)
	testserver.RequirePostgres(t)
	server := testserver.Redis(t)
	peer := newAsynq(t, server)
	for queue, url := range map[string]string{
		"redis": server.URL(), "postgres": testserver.Postgres(t, testserver.PostgresOptions{}).URL(),
		"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "jobs.db"),
	} {
		t.Run(queue, func(t *testing.T) {
			r := on(t, url)
			peer.fill(queue)
			badImports(r, queue)
			const before = "pending 257 scheduled 5 archived 1 paused false"
			if got := peer.has(queue); got != before {
				t.Fatalf("asynq has %s, want %s: nothing was asked for", got, before)
			}
			r.env[EnvFrom] = peer.url
			line := "import asynq --queue " + queue + " --to letters --kind email:send=send_mail"
			dry := r.says(Done, "", line+" --dry-run -o json")
			var record show.Import
			err := json.Unmarshal([]byte(dry.out), &record)
			if err != nil || record.Moved["email:send"] != 260 || len(record.Left) != 2 || record.Stays["archived"] != 1 {
				t.Errorf("--dry-run says %s, %v", dry.out, err)
			}
			r.says(BadInput, "nobody is here to confirm this", line)
			if got := peer.has(queue); got != before {
				t.Fatalf("asynq has %s, want %s: it was only shown", got, before)
			}
			r.says(NotFound, "", "queue show letters")
			imported(r, peer, queue, line)
		})
	}
}

// badImports runs lines that have to be refused before anything is moved.
func badImports(r *rig, queue string) {
	line := "import asynq --queue " + queue
	r.says(BadInput, "give --from, the URL of the Redis of asynq, or set MIDGE_IMPORT_FROM", line+" --kind a=b")
	r.says(BadInput, `invalid --from "***"`, line+" --kind a=b --from nonsense:s3cret")
	r.says(BadInput, "want type=kind", line+" --kind a")
	r.says(BadInput, "one kind of a type", line+" --kind a=b --kind a=c")
	r.says(BadInput, "the table of kinds cannot be read", line+" --kinds /none")
	r.says(BadInput, "queue name", line+" --kind a=b --to bad/name")
	r.says(Unreachable, "asynq gives no answer", line+" --kind a=b --from redis://127.0.0.1:1")
	r.says(BadInput, "unknown flag", line+" --discarded")
	r.says(BadInput, "unexpected argument", line+" x")
}

// imported moves a queue, then its archived tasks, and checks that all of them are in the storage.
func imported(r *rig, peer *asynqs, queue, line string) {
	t := r.t
	t.Helper()
	r.says(BadInput, `invalid queue of asynq "none": want one that asynq knows`, strings.Replace(line, queue, "none", 1))
	got := r.says(Done, "moved: 260 tasks of type email:send", line+" --yes")
	for _, want := range []string{"left: 1 task of type image:resize", "left: 1 task of type email:send", "not moved: 1 archived"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("the import says %s, want %q", got.out, want)
		}
	}
	if actions := r.ok("audit --limit 1 -o jsonl"); strings.Count(actions, `"letters/t`) != 100 || !strings.Contains(actions, `"count":260`) {
		t.Errorf("the audit has %s, want 260 tasks and the first 100 of them", actions)
	}
	if got, want := peer.has(queue), "pending 2 scheduled 0 archived 1 paused true"; got != want {
		t.Errorf("asynq has %s, want %s", got, want)
	}
	var q show.Queue
	if err := json.Unmarshal([]byte(r.ok("queue show letters -o json")), &q); err != nil || q.Waiting != 255 || q.Scheduled != 5 {
		t.Errorf("midge has %+v, %v; want 255 waiting and 5 scheduled", q, err)
	}
	if got := r.ok("task show letters/t042 -o jsonl"); !strings.Contains(got, `"params":{"n":42}`) || !strings.Contains(got, `"kind":"send_mail"`) {
		t.Errorf("a task is %s", got)
	}
	table := filepath.Join(t.TempDir(), "kinds")
	if err := os.WriteFile(table, []byte("email:send = send_mail\n# all the others\n*\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	base := "import asynq --queue " + queue + " --to letters --kinds " + table
	r.says(Done, "moved: 1 task of type image:resize", base+" --archived --yes")
	if got, want := peer.has(queue), "pending 1 scheduled 0 archived 0 paused true"; got != want {
		t.Errorf("asynq has %s, want %s", got, want)
	}
	r.says(Done, "has back what was not inserted, and is resumed", base+" --abort")
	if got, want := peer.has(queue), "pending 1 scheduled 0 archived 0 paused false"; got != want {
		t.Errorf("asynq has %s, want %s", got, want)
	}
	var actions []string
	for line := range strings.Lines(r.ok("task ls --queue midge.audit --state all -o jsonl")) {
		var task struct {
			Params struct {
				Action, Queue, Note, Outcome string
				Count                        int
			}
		}
		if err := json.Unmarshal([]byte(line), &task); err != nil {
			t.Fatal(err)
		}
		actions = append(actions, fmt.Sprint(task.Params))
	}
	want := fmt.Sprintf("[{abort an import letters from queue %[1]s of asynq done 1} {import letters from queue %[1]s of asynq done 2} "+
		"{import letters from queue %[1]s of asynq done 260}]", queue)
	if got := fmt.Sprint(actions); got != want {
		t.Errorf("the audit has %s\nwant %s", got, want)
	}
}

// fullOf is a storage that refuses a Tx with more than most inserts.
type fullOf struct {
	storage.Storage

	most int
}

func (f fullOf) Apply(ctx context.Context, call storage.Call, txs ...storage.Tx) ([]storage.Applied, error) {
	for _, tx := range txs {
		if len(tx.Inserts) > f.most {
			return nil, storage.ErrFull
		}
	}
	return f.Storage.Apply(ctx, call, txs...)
}

// TestAnImportThatFailsIsGivenBack lets the storage refuse a chunk that was set aside.
func TestAnImportThatFailsIsGivenBack(t *testing.T) {
	t.Parallel()
	testserver.Require(t)
	peer := newAsynq(t, testserver.Redis(t))
	peer.fill("mail")
	r := newRig(t)
	r.env[EnvFrom] = peer.url
	whole := r.store
	line := "import asynq --queue mail --kind email:send=send_mail"
	r.store = fullOf{whole, 100}
	r.says(Refused, "", line+" --yes")
	if got := peer.has("mail"); !strings.Contains(got, "paused true") || strings.Contains(got, "pending 257") {
		t.Errorf("asynq has %s, want a chunk set aside", got)
	}
	r.store = whole
	r.says(Done, "has back what was not inserted", line+" --abort")
	if got, want := peer.has("mail"), "pending 257 scheduled 5 archived 1 paused false"; got != want {
		t.Errorf("asynq has %s, want %s", got, want)
	}
	r.says(Done, "moved: 260 tasks", line+" --yes")
}

// TestAnImportToAnotherQueueIsToldWhatToDo starts an import while a chunk is set aside for another queue or
// another storage.
func TestAnImportToAnotherQueueIsToldWhatToDo(t *testing.T) {
	t.Parallel()
	testserver.Require(t)
	peer := newAsynq(t, testserver.Redis(t))
	peer.fill("mail")
	r := newRig(t)
	r.env[EnvFrom] = peer.url
	whole := r.store
	line := "import asynq --queue mail --kind email:send=send_mail"
	r.store = fullOf{whole, 100}
	r.says(Refused, "", line+" --to letters --yes")
	r.store = whole
	r.says(Refused, "give the command again with --to letters, which moves them, or with --abort", line+" --yes")
	r.says(BadInput, "--storage-gone is for --abort alone", line+" --storage-gone --yes")
	elsewhere := newRig(t)
	elsewhere.env[EnvFrom] = peer.url
	elsewhere.says(Refused, "for queue letters of another storage", line+" --yes")
	elsewhere.says(Refused, "if that storage is gone, with --abort --storage-gone", line+" --abort")
	if got := peer.has("mail"); !strings.Contains(got, "paused true") || strings.Contains(got, "pending 257") {
		t.Errorf("asynq has %s, want the chunk set aside still", got)
	}
	r.says(Done, "has back what was not inserted", line+" --abort")
	if got, want := peer.has("mail"), "pending 257 scheduled 5 archived 1 paused false"; got != want {
		t.Errorf("asynq has %s, want %s", got, want)
	}
	if got := r.ok("audit"); !strings.Contains(got, "letters") {
		t.Errorf("the audit has %s, want that the abort was of letters", got)
	}
	r.says(Done, "moved: 260 tasks", line+" --yes")
}

// mailing is a job of River.
type mailing struct {
	N int `json:"n"`
}

func (mailing) Kind() string { return "email_send" }

// newRiver creates River's tables in a schema, or in that of the search path if the name is empty, and
// enqueues jobs in a queue.
func newRiver(t *testing.T, url, schema string, jobs int) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if schema != "" {
		if _, err := pool.Exec(t.Context(), "CREATE SCHEMA "+pgx.Identifier{schema}.Sanitize()); err != nil {
			t.Fatal(err)
		}
	}
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	client, err := river.NewClient(driver, &river.Config{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	var many []river.InsertManyParams
	for n := range jobs {
		many = append(many, river.InsertManyParams{Args: mailing{n}})
	}
	if _, err := client.InsertMany(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	return pool
}

func TestRiverIsImportedByTheCommand(t *testing.T) {
	t.Parallel()
	testserver.RequirePostgres(t)
	url := testserver.Postgres(t, testserver.PostgresOptions{}).URL()
	pool := newRiver(t, url, "", 270)
	newRiver(t, url, "other", 3)
	if _, err := pool.Exec(t.Context(), "UPDATE river_job SET state = 'discarded', finalized_at = now() WHERE id = 1"); err != nil {
		t.Fatal(err)
	}
	jobs := func(table string) (n int) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	r := on(t, url)
	const line = "import river --kind email_send=send_mail --to letters"
	r.says(BadInput, `invalid queue of River "none": want one that has jobs`, line+" --queue none")
	r.says(BadInput, "want type=kind", "import river --kind =")
	r.says(BadInput, "nobody is here to confirm this", line)
	r.says(Failed, "read River's jobs", line+" --river-schema none")
	r.says(Done, "to be moved: 269 tasks of type email_send\nnot moved: 1 discarded", line+" --dry-run")
	if jobs("river_job") != 270 {
		t.Errorf("River has %d jobs, want all: it was only shown", jobs("river_job"))
	}
	r.says(Done, "moved: 269 tasks", line+" --yes")
	r.says(Done, "moved: 1 task", line+" --discarded --yes")
	r.says(Done, "moved: 3 tasks", strings.Replace(line, "letters", "others", 1)+" --river-schema other --yes")
	if jobs("river_job")+jobs("other.river_job") != 0 {
		t.Errorf("River has %d and %d jobs, want none", jobs("river_job"), jobs("other.river_job"))
	}
	r.says(Done, "nothing is left to move", line+" --yes")
	r.says(Done, "nothing is left to move", line+" --dry-run")
	r.says(BadInput, `invalid queue of River "default"`, strings.Replace(line, "letters", "elsewhere", 1)+" --yes")
	if got := strings.Count(r.ok("task ls --queue letters,others -o ids"), "\n"); got != 273 {
		t.Errorf("midge has %d tasks, want 273", got)
	}
	elsewhere := on(t, "sqlite:"+filepath.Join(t.TempDir(), "jobs.db"))
	elsewhere.says(BadInput, "wants the PostgreSQL in which River's tables are", line)
}
