package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/storage"
)

// job is a row of the view.
type job struct {
	Queue, ID, Kind, State *string
	Priority               *int16
	RunAt                  *time.Time
	Retries                *int64
	CreatedAt, LeaseUntil  *time.Time
	LastError              *string
}

// jobs reads the view, by queue and id.
func (s *shop) jobs() map[string]job {
	s.Helper()
	rows, err := s.conn.Query(s.Context(), "SELECT queue, id, kind, state, priority, run_at, retries, created_at, "+
		"lease_until, last_error FROM "+s.cfg.Schema+".jobs")
	s.must(err)
	all := make(map[string]job)
	for rows.Next() {
		var j job
		s.must(rows.Scan(&j.Queue, &j.ID, &j.Kind, &j.State, &j.Priority, &j.RunAt, &j.Retries, &j.CreatedAt,
			&j.LeaseUntil, &j.LastError))
		all[told(j.Queue)+"/"+told(j.ID)] = j
	}
	s.must(rows.Err())
	return all
}

// told returns the value of a column as text, "-" for null.
func told[V any](v *V) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprint(*v)
}

func (j job) String() string {
	return strings.Join([]string{
		told(j.Kind), told(j.State), told(j.Priority), "run " + at(j.RunAt), "retries " + told(j.Retries),
		"created " + at(j.CreatedAt), "lease " + at(j.LeaseUntil), "error " + told(j.LastError),
	}, ", ")
}

func at(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// jobOf returns the row that the view has to have for a task.
func jobOf(t *storage.Task) string {
	state, priority, retries := string(t.State), int16(t.Priority), int64(t.Retries)
	j := job{
		Kind: &t.Kind, State: &state, Priority: &priority, RunAt: &t.Due, Retries: &retries, CreatedAt: &t.Created,
		LeaseUntil: &t.LeaseUntil,
	}
	for i := range t.Attempts {
		if t.Attempts[i].Error != "" {
			j.LastError = &t.Attempts[i].Error
		}
	}
	return j.String()
}

// TestJobsSaysWhatTheContractSays compares the view with the contract after random steps.
func TestJobsSaysWhatTheContractSays(t *testing.T) {
	s := newShop(t)
	seed := rand.Uint64()
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for n := range 30 {
		s.randomStep(random, n)
	}
	got, queues := s.jobs(), []string{"mail", "video"}
	for _, q := range queues {
		for _, state := range storage.States() {
			for task, err := range storage.Each(t.Context(), s.store, q, state) {
				s.must(err)
				if state == storage.Cursors {
					continue
				}
				name := task.Ref.Queue + "/" + task.Ref.ID
				s.want(name, got[name].String(), jobOf(&task))
				delete(got, name)
			}
		}
	}
	s.want("jobs that no listing has", fmt.Sprint(got), "map[]")
}

// randomStep enqueues some tasks and ends the claims of others.
func (s *shop) randomStep(random *rand.Rand, n int) {
	s.Helper()
	outcomes := []storage.Outcome{storage.Complete, storage.Fail, storage.Bury, storage.Cancel, storage.Release, storage.Snooze}
	for i := range random.IntN(8) {
		in := insertOf(storage.NewID())
		if random.IntN(2) == 0 {
			in.Ref.ID = fmt.Sprintf("order-%d-%d", n, i)
		}
		in.Ref.Queue = []string{"mail", "video"}[random.IntN(2)]
		in.Kind, in.Priority = fmt.Sprint("Kind.", n), random.IntN(storage.MaxPriority+1)
		in.MaxRetries, in.Payload = random.IntN(1000), make([]byte, random.IntN(5000))
		if random.IntN(3) == 0 {
			in.Delay = time.Duration(random.IntN(1000)) * time.Second
		}
		if random.IntN(2) == 0 {
			in.Keep.For = time.Hour
		}
		s.apply(s.store, storage.Tx{Inserts: []storage.Insert{in}})
	}
	req := claimOf(random.IntN(6) + 1)
	req.Queues = []storage.ClaimQueue{{Name: "mail"}, {Name: "video"}}
	claimed, err := s.session.Claim(s.Context(), req)
	s.must(err)
	for _, f := range claimed.Fences {
		settle := storage.Settle{Fence: f, Outcome: outcomes[random.IntN(len(outcomes))]}
		switch settle.Outcome {
		case storage.Fail, storage.Snooze:
			settle.Delay = time.Duration(random.IntN(3)) * time.Second
		default:
		}
		if settle.Outcome == storage.Fail || settle.Outcome == storage.Bury || settle.Outcome == storage.Cancel {
			settle.Error = fmt.Sprintf("no \"luck\" \x01 ümlaut %d", n)
		}
		if random.IntN(5) > 0 {
			s.apply(s.store, storage.Tx{Settles: []storage.Settle{settle}})
		}
	}
}

// TestJobsOfDamagedRowsAreNull damages rows, and expects nulls and never an error.
func TestJobsOfDamagedRowsAreNull(t *testing.T) {
	for _, c := range []struct{ table, set, want string }{
		{"tasks", "id = '\\xff00'", "q/-"},
		{"tasks", "id = '\\x'", "q/-"},
		{"tasks", "id = '\\x00000000000000000000000000000000'", "q/00000000000000000000000000"},
		{"tasks", "id = '\\xffffffffffffffffffffffffffffffff'", "q/-"},
		{"tasks", "id = convert_to(repeat('x', 200), 'utf8')", "q/-"},
		{"tasks", "queue = queue + 1000", "-/a"},
		{"tasks", "record = '\\x'", "kind -"},
		{"tasks", "record = 'garbage'", "kind -"},
		{"tasks", "record = '\\x80ffffffffffffffffffffff01'", "kind -"},
		{"tasks", "record = substr(record, 1, 5)", "kind -"},
		{"tasks", "record = '\\x800000'", "kind -"},
		{"tasks", "record = '\\x80000002ffff'", "kind -"},
		{"tasks", "past = '\\x01'", "created -, retries -"},
		{"tasks", "past = '\\xffffffffffffffffff'", "created -, retries -"},
		{"tasks", "past = '\\x00000000000000010000'", "created 1970-01-01T00:00:00.000001Z, retries 0"},
		{"tasks", "past = '\\x7fffffffffffffffffffffffffffffffffffff'", "created -, retries -"},
		{"tasks", "version = -1, past = ''", "created -"},
		{"tasks", "version = 9223372036854775807, past = ''", "created -"},
		{"tasks", "sort = -9223372036854775808, line = line / 16 * 16 + 6", "run -"},
		{"tasks", "sort = 9223372036854775807, line = line / 16 * 16 + 6", "run -"},
		{"tasks", "sort = 9223372036854775807, line = line / 16 * 16 + 4", "lease -"},
		{"tasks", "turn = -9223372036854775808", ""},
		{"tasks", "line = -3", "state -"},
		{"tasks", "line = 0", "state -"},
		{"tasks", "line = 2147483645", "state -"},
		{"tasks", "flags = -1", ""},
		{"tasks", "flags = 32767", ""},
		{"tasks", "priority = -32768", "priority -32768"},
		{"tasks", "lease = '\\x00'", ""},
		{"sides", "attempts = 'garbage'", "error -"},
		{"sides", "attempts = '\\xff'", "error -"},
		{"sides", "attempts = '{}'", "error -"},
		{"sides", "attempts = '[1]'", "error -"},
		{"sides", "attempts = '[{\"Error\": {}}]'", ""},
		{"sides", "attempts = '[{\"Error\": \"\\\\u0000\"}]'", "error -"},
		{"sides", "attempts = NULL", "error -"},
		{"queues", "name = chr(9)", ""},
	} {
		t.Run(c.set, func(t *testing.T) {
			s := newShop(t)
			s.apply(s.store, storage.Tx{Inserts: []storage.Insert{insertOf("a")}})
			f := s.claim(1).Fences[0]
			s.apply(s.store, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Fail, Error: "no", Delay: time.Hour}}})
			s.damage("UPDATE %s." + c.table + " SET " + strings.ReplaceAll(c.set, "%", "%%"))
			for name, j := range s.jobs() {
				all := name + ", kind " + told(j.Kind) + ", state " + told(j.State) + ", priority " + told(j.Priority) +
					", created " + at(j.CreatedAt) + ", " + j.String()
				for part := range strings.SplitSeq(c.want, ", ") {
					if !strings.Contains(all, part) {
						t.Errorf("got %s, want it to say %q", all, part)
					}
				}
			}
		})
	}
}
