//go:build unix

package faulttest

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// damagedTask is a task that was damaged in a storm, and how.
type damagedTask struct {
	ref storage.Ref
	how string
}

// taskDamage is a way to damage a task: the state in which the task must be, and the commands that
// damage it.
type taskDamage struct {
	name  string
	state storage.State
	redis string // the end of a script that begins with taskStates
	sql   string // %s stands for the schema, $1 is the id
}

// taskStates is the begin of the scripts. KEYS[1] is the prefix of the keys of the queue, ARGV[1] the
// id of the task. A task that is neither pending nor kept has only its record.
const taskStates = `
local function has(set)
	for _, member in ipairs(redis.call('ZRANGE', KEYS[1]..set, 0, -1)) do
		if member:sub(-#ARGV[1]) == ARGV[1] then return true end
	end
	return false
end
local runs = redis.call('HEXISTS', KEYS[1]..'pending', ARGV[1]) == 1
local waits = has('scheduled')
`

var taskDamages = []taskDamage{
	{
		"the record of a task that is due", storage.Scheduled,
		`if waits then redis.call('HSET', KEYS[1]..'tasks', ARGV[1], 'garbage') return 1 end return 0`,
		`UPDATE %s.tasks SET record = '\x00' WHERE id = $1 AND line & 15 = 6`,
	},
	{
		"the past of a task that is due", storage.Scheduled,
		`if waits then redis.call('HSET', KEYS[1]..'tasks', ARGV[1], '') return 1 end return 0`,
		`UPDATE %s.tasks SET past = '\x00' WHERE id = $1 AND line & 15 = 6`,
	},
	{
		"the lease of a task that runs", storage.Pending,
		`if runs then redis.call('HSET', KEYS[1]..'pending', ARGV[1], 'garbage') return 1 end return 0`,
		`UPDATE %s.tasks SET lease = '\x00' WHERE id = $1 AND line & 15 IN (4, 5)`,
	},
	{
		"the record of a task that runs", storage.Pending,
		`if runs then redis.call('HSET', KEYS[1]..'tasks', ARGV[1], 'garbage') return 1 end return 0`,
		`UPDATE %s.tasks SET record = '\x00' WHERE id = $1 AND line & 15 IN (4, 5)`,
	},
}

// damagedPrefix is the prefix of the ids of tasks that are enqueued to be damaged.
const damagedPrefix = "damaged-"

// damagedQueue is the prefix of the names of the queues whose keys are damaged.
const damagedQueue = "damaged"

// damageTime is how long a task stays in the state in which it is to be damaged, in the first try. On a busy
// machine a read of the task and the damage take a second or two, and sometimes longer.
const damageTime = 4 * time.Second

// damageRecord damages a task and reports whether it did. If the task has moved on before it
// could be damaged, as may happen on a slow machine, another task is tried, which stays for longer.
func (n *faultInjector) damageRecord() bool {
	for stay := damageTime; stay <= 4*damageTime; stay *= 2 {
		if n.damageOneRecord(stay) {
			return true
		}
	}
	return false
}

// damageOneRecord enqueues a task that stays for a while in the state that the damage needs, and damages it. It
// reports whether it did, which fails if the task has left that state.
func (n *faultInjector) damageOneRecord(stay time.Duration) bool {
	d := taskDamages[n.random.IntN(len(taskDamages))]
	ref := storage.Ref{Queue: n.queues[n.random.IntN(len(n.queues))], ID: damagedPrefix + storage.NewID()}
	job, opts := stormJob{}, []midge.Option{midge.In(stay)}
	if d.state == storage.Pending {
		job, opts = stormJob(steps(sleep(stay))), nil
	}
	n.failoverMu.Lock()
	defer n.failoverMu.Unlock()
	ctx := context.WithoutCancel(n.t.Context())
	if _, err := enqueue(ctx, n.client, n.rec, ref.Queue, ref.ID, job, opts...); err != nil {
		return false
	}
	var state storage.State
	seen := func() bool { // a waiting task may still start, and in any other state it has started or waits as asked
		task, err := n.store.Task(ctx, ref)
		state = task.State
		return err == nil && state != storage.Waiting
	}
	if !poll(2*n.server.lease(), seen) || state != d.state || !n.damageTask(d, ref) {
		return false
	}
	n.stormMu.Lock()
	defer n.stormMu.Unlock()
	n.damagedTasks = append(n.damagedTasks, damagedTask{ref, d.name})
	return true
}

// damageTask damages a task and reports whether the task was in the state that the damage needs.
func (n *faultInjector) damageTask(d taskDamage, ref storage.Ref) bool {
	if n.server.kind == oneFile {
		text := strings.NewReplacer("%s.", "midge_", `'\x00'`, "x'00'", "$1", "?").Replace(d.sql)
		return n.execute(text, ref.ID) == 1
	}
	if n.server.kind == onePostgres {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(n.t.Context()), 5*time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, n.server.nodes[0].(*testserver.PostgresServer).URL())
		if err != nil {
			return false
		}
		defer func() { _ = conn.Close(ctx) }()
		done, err := conn.Exec(ctx, fmt.Sprintf(d.sql, n.dialing.Place), []byte(ref.ID))
		return err == nil && done.RowsAffected() == 1
	}
	answer, err := n.redis("EVAL", taskStates+d.redis, "1", n.key(ref.Queue, ""), ref.ID)
	return err == nil && answer == "1"
}

// execute changes the file as any SQLite tool may, and returns the number of changed rows.
func (n *faultInjector) execute(text string, args ...any) int64 {
	db, err := sql.Open(modernc.Driver, n.dialing.Addrs[0]+"?_pragma=busy_timeout(5000)")
	if err != nil {
		return 0
	}
	defer func() { _ = db.Close() }()
	done, err := db.ExecContext(context.WithoutCancel(n.t.Context()), text, args...)
	if err != nil {
		return 0
	}
	rows, _ := done.RowsAffected()
	return rows
}

// key returns a key of a queue.
func (n *faultInjector) key(queue, name string) string {
	return n.dialing.Place + ":{" + queue + "}:" + name
}

// redis executes a command on whichever node has the key.
func (n *faultInjector) redis(args ...string) (answer string, err error) {
	for _, node := range n.server.nodes {
		answer, err = node.(*testserver.Server).Do(args...)
		if err == nil {
			break
		}
	}
	return answer, err
}

// damageKey enqueues a task in a queue of its own and damages a key or field of that queue.
func (n *faultInjector) damageKey() bool {
	n.stormMu.Lock()
	queue := n.damagedQueues[n.done[damageKey]]
	n.stormMu.Unlock()
	ctx := context.WithoutCancel(n.t.Context())
	if _, err := enqueue(ctx, n.client, n.rec, queue, "task", stormJob{}); err != nil {
		return false
	}
	all := keyDamages()
	d := all[n.random.IntN(len(all))]
	do := slices.Clone(d.do)
	do[1] = fmt.Sprintf(do[1], n.key(queue, ""))
	if d.reported { // otherwise Redis would refuse a command of another type
		if _, err := n.redis("DEL", do[1]); err != nil {
			return false
		}
	}
	_, err := n.redis(do...)
	return err == nil
}
