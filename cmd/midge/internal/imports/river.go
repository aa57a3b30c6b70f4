package imports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
)

// River moves a queue of River into a queue of midge, in the database that both share. Each chunk is one
// transaction, which deletes the jobs of River and inserts the tasks.
type River struct {
	Conn     *pgx.Conn // connection to the database
	Store    *postgres.Storage
	Schema   string // schema of River's tables, "" for the search path
	From, To string // names of the queues
	Kinds    Kinds
	// Discarded moves discarded jobs too, as tasks that run at once. Without it they stay.
	Discarded bool
	// Done is called after each chunk, if it is not nil.
	Done func(*Report)

	step func(name string) error // of tests, to end an import in the middle
}

// job is a row of River's table.
type job struct {
	id                             int64
	kind, args, metadata, failure  string
	priority, attempt, maxAttempts int64
	due                            time.Time
	tags                           []string
}

// table returns the name of River's table.
func (r *River) table() string {
	if r.Schema == "" {
		return "river_job"
	}
	return pgx.Identifier{r.Schema, "river_job"}.Sanitize()
}

// states returns the states whose jobs move.
func (r *River) states() []string {
	states := []string{"available", "retryable", "scheduled"}
	if r.Discarded {
		states = append(states, "discarded")
	}
	return states
}

// types returns the types whose jobs move, nil for all types.
func (r *River) types() (types []string) {
	if _, all := r.Kinds[All]; all {
		return nil
	}
	return append([]string{}, slices.Sorted(maps.Keys(r.Kinds))...)
}

const selectJobs = `SELECT id, kind, args::text, metadata::text,
	coalesce(errors[array_upper(errors, 1)] ->> 'error', ''),
	priority, attempt, max_attempts, scheduled_at, coalesce(tags, '{}')
	FROM %s WHERE queue = $1 AND state::text = ANY($2) AND ($3::text[] IS NULL OR kind = ANY($3)) `

// Run reads jobs in the order in which River would work them, so that the tasks wait in that order in
// midge. Plan reads jobs by id.
const (
	inOrder = "AND id <> ALL($4) ORDER BY priority, scheduled_at, id LIMIT $5 FOR UPDATE SKIP LOCKED"
	byID    = "AND id > $4 ORDER BY id LIMIT $5"
)

// Check returns a *[storage.InvalidError] if the queue of River has no jobs and midge's queue does not
// exist, or if the name of midge's queue is not valid. If midge's queue exists, an earlier import may have
// moved all jobs. Check changes nothing.
func (r *River) Check(ctx context.Context) error {
	if err := storage.CheckName("queue name", r.To); err != nil {
		return err
	}
	var known bool
	err := r.Conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+r.table()+" WHERE queue = $1)",
		r.From).Scan(&known)
	switch {
	case err != nil:
		return fmt.Errorf("read River's jobs: %w", err)
	case known:
		return nil
	}
	// The name of the queue itself is the first of all names that begin with it.
	page, err := r.Store.Queues(ctx, storage.QueuesQuery{Prefix: r.To, Limit: 1})
	if err != nil || slices.Contains(page.Names, r.To) {
		return err
	}
	return storage.Invalid("queue of River", r.From, "one that has jobs")
}

// Run moves the jobs. Running jobs stay with River, which continues to work the queue: River's workers and
// the import never take the same job.
func (r *River) Run(ctx context.Context) (*Report, error) {
	report, left := newReport(), []int64{}
	if err := r.Check(ctx); err != nil {
		return report, err
	}
	described, err := r.Store.Describe(ctx)
	if err != nil {
		return report, err
	}
	taken := make(map[string]bool)
	for {
		n, stay, err := r.chunk(ctx, described.Limits, left, taken, report)
		var dependency *storage.DependencyError
		if errors.As(err, &dependency) && len(dependency.Colliding) > 0 {
			for _, c := range dependency.Colliding {
				taken[c.Ref.ID] = true
			}
			continue
		}
		if err != nil {
			return report, err
		}
		if n == 0 {
			return report, r.unknown(ctx, report)
		}
		left = append(left, stay...)
		if r.Done != nil {
			r.Done(report)
		}
	}
}

// chunk moves one chunk. It returns the number of jobs that it read, and the ids of the jobs that stay.
func (r *River) chunk(
	ctx context.Context, limits storage.Limits, left []int64, taken map[string]bool, report *Report,
) (n int, stay []int64, err error) {
	chunk := newReport()
	err = pgx.BeginFunc(ctx, r.Conn, func(tx pgx.Tx) error {
		jobs, err := r.read(ctx, tx, inOrder, left)
		if err != nil || len(jobs) == 0 {
			return err
		}
		n = len(jobs)
		var inserts storage.Tx
		var gone []int64
		for i := range jobs {
			in, reason := r.insert(&jobs[i], limits)
			if reason == "" && taken[in.Ref.ID] {
				reason = "another task of queue " + r.To + " has its id"
			}
			if reason == "" && len(inserts.Inserts) > 0 && inserts.Bytes()+len(in.Payload) > chunkBytes {
				break // the next chunk takes the rest
			}
			if reason != "" {
				stay = append(stay, jobs[i].id)
				chunk.left(jobs[i].kind, reason)
				continue
			}
			inserts.Inserts, gone = append(inserts.Inserts, in), append(gone, jobs[i].id)
			chunk.moved(jobs[i].kind, in.Ref)
		}
		return r.move(ctx, tx, inserts, gone)
	})
	if err == nil {
		report.add(chunk)
	}
	return n, stay, err
}

// move inserts the tasks and deletes their jobs.
func (r *River) move(ctx context.Context, tx pgx.Tx, inserts storage.Tx, gone []int64) error {
	if len(gone) == 0 {
		return nil
	}
	applied, err := r.Store.Within(tx).Apply(ctx, storage.Call{}, inserts)
	if err != nil {
		return err
	}
	if applied[0].Err != nil {
		return applied[0].Err
	}
	if err := r.at("inserted"); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "DELETE FROM "+r.table()+" WHERE id = ANY($1)", gone); err != nil {
		return fmt.Errorf("delete River's jobs: %w", err)
	}
	return r.at("deleted")
}

func (r *River) at(name string) error {
	if r.step == nil {
		return nil
	}
	return r.step(name)
}

// queryer is a connection or a transaction.
type queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// read reads a chunk of jobs. rest is the end of the query: it defines, with place as its argument, which
// jobs are read and in which order.
func (r *River) read(ctx context.Context, from queryer, rest string, place any) ([]job, error) {
	rows, err := from.Query(ctx, fmt.Sprintf(selectJobs, r.table())+rest, r.From, r.states(), r.types(), place,
		chunkTasks)
	if err != nil {
		return nil, fmt.Errorf("read River's jobs: %w", err)
	}
	jobs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (j job, err error) {
		err = row.Scan(&j.id, &j.kind, &j.args, &j.metadata, &j.failure, &j.priority, &j.attempt, &j.maxAttempts,
			&j.due, &j.tags)
		return j, err
	})
	if err != nil {
		return nil, fmt.Errorf("read River's jobs: %w", err)
	}
	return jobs, nil
}

// insert makes the insert of a job. reason is why the job cannot be inserted, "" if it can. River's
// priorities are 1, the highest, to 4.
func (r *River) insert(j *job, limits storage.Limits) (in storage.Insert, reason string) {
	kind := r.Kinds.Of(j.kind)
	if kind == "" {
		return in, unknownType
	}
	in = storage.Insert{
		Ref: storage.Ref{Queue: r.To, ID: "river-" + strconv.FormatInt(j.id, 10)}, Kind: kind,
		Encoding: "json", Payload: []byte(j.args), At: j.due, Priority: int(1 - j.priority),
		MaxRetries: int(min(max(0, j.maxAttempts-j.attempt-1), storage.MaxLimit)), CrashLimit: 3,
		Headers: make(map[string]string),
	}
	if len(j.tags) > 0 {
		in.Headers["river.tags"] = strings.Join(j.tags, ",")
	}
	if j.failure != "" {
		in.Headers["river.error"] = storage.CleanText(j.failure, maxError)
	}
	if metadata := map[string]json.RawMessage{}; json.Unmarshal([]byte(j.metadata), &metadata) == nil &&
		len(metadata) > 0 {
		in.Headers["river.metadata"] = j.metadata
	}
	in = in.CompleteHeaders()
	return in, unfit(limits, &in)
}

// Plan returns the report that Run would return, and changes nothing.
func (r *River) Plan(ctx context.Context) (*Report, error) {
	report, last := newReport(), int64(0)
	if err := r.Check(ctx); err != nil {
		return report, err
	}
	described, err := r.Store.Describe(ctx)
	if err != nil {
		return report, err
	}
	for {
		jobs, err := r.read(ctx, r.Conn, byID, last)
		if err != nil {
			return report, err
		}
		if len(jobs) == 0 {
			return report, r.unknown(ctx, report)
		}
		for i := range jobs {
			if in, reason := r.insert(&jobs[i], described.Limits); reason != "" {
				report.left(jobs[i].kind, reason)
			} else {
				report.moved(jobs[i].kind, in.Ref)
			}
			last = jobs[i].id
		}
	}
}

// unknown counts the jobs whose types the table does not name, and adds them to the report.
func (r *River) unknown(ctx context.Context, report *Report) error {
	return r.count(ctx, "kind", "state::text = ANY($2) AND NOT ($3::text[] IS NULL OR kind = ANY($3))",
		func(kind string, n int64) {
			report.Left[Left{kind, unknownType}] += n
		}, r.types())
}

// count counts the jobs of the queue that match a condition, and calls each for every value of the column
// by.
func (r *River) count(ctx context.Context, by, where string, each func(string, int64), more ...any) error {
	rows, err := r.Conn.Query(ctx,
		"SELECT "+by+", count(*) FROM "+r.table()+" WHERE queue = $1 AND "+where+" GROUP BY 1",
		append([]any{r.From, r.states()}, more...)...)
	if err != nil {
		return fmt.Errorf("read River's jobs: %w", err)
	}
	var key string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&key, &n}, func() error {
		each(key, n)
		return nil
	})
	return err
}

// Stays counts the jobs of the queue that an import does not examine, by state.
func (r *River) Stays(ctx context.Context) (map[string]int64, error) {
	stays := make(map[string]int64)
	err := r.count(ctx, "state::text", "state::text <> ALL($2)", func(state string,
		n int64,
	) {
		stays[state] = n
	})
	return stays, err
}
