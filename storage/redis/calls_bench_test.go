package redis

import (
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// BenchmarkCalls measures how much time a server's processor spends on each kind of call: in its
// scripts (script-µs) and in all (server-µs), for each task, or for each call without tasks.
// The calls come in pipelines, so that the network and cold caches do not blur the result.
func BenchmarkCalls(b *testing.B) {
	for _, n := range []int{1, 2, 8, 16, 100, insertOps} {
		b.Run("insert/"+strconv.Itoa(n), func(b *testing.B) { newCalls(b).insert(n) })
		b.Run("claim/"+strconv.Itoa(n), func(b *testing.B) { newCalls(b).claim(n) })
		b.Run("complete/"+strconv.Itoa(n), func(b *testing.B) { newCalls(b).complete(n) })
	}
	for _, n := range []int{4, 16} {
		b.Run("combined/"+strconv.Itoa(n), func(b *testing.B) { newCalls(b).combined(n) })
	}
	b.Run("claim/0", func(b *testing.B) { newCalls(b).empty() })
}

// benchCalls is a storage on a server of its own, with known lanes and scripts.
type benchCalls struct {
	*testing.B

	store *Storage
	lanes []storage.Lane
	seq   uint64
}

// scriptCall is one command.
type scriptCall struct {
	script *script
	keys   []any
	args   []any
}

const piped = 32 // calls of one pipeline

func newCalls(b *testing.B) *benchCalls {
	b.Helper()
	server := testserver.Redis(b)
	store, err := Open(b.Context(), Config{URL: "redis://" + server.Addr()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	c := &benchCalls{B: b, store: store, lanes: make([]storage.Lane, 16)}
	all := store.scripts
	for _, sc := range []*script{&all.apply, &all.claim, &all.insert, &all.complete} {
		if err := store.client.ScriptLoad(b.Context(), sc.source).Err(); err != nil {
			b.Fatal(err)
		}
	}
	for i := range c.lanes { // the first call of a lane always goes the general way
		c.lanes[i] = storage.Lane{ID: storage.NewToken(), Opened: time.Now()}
		if _, err := store.Apply(b.Context(), c.call(i), c.txs(1)...); err != nil {
			b.Fatal(err)
		}
	}
	c.settle(c.take(c.claims(16, 16), 16))
	return c
}

func (c *benchCalls) call(lane int) storage.Call {
	c.seq++
	return storage.Call{Lane: c.lanes[lane], Seq: c.seq}
}

func (c *benchCalls) txs(n int) []storage.Tx {
	txs := make([]storage.Tx, n)
	for i := range txs {
		txs[i].Inserts = []storage.Insert{{
			Ref: storage.Ref{Queue: "mail", ID: storage.NewID()}, Kind: "send_welcome", Encoding: "msgpack",
			Payload: make([]byte, 64), MaxRetries: 20, CrashLimit: 3,
		}}
	}
	return txs
}

// applies returns the script call for Txs that come from so many callers.
func (c *benchCalls) applies(txs []storage.Tx, callers int) scriptCall {
	var parts []*part
	each := len(txs) / callers
	for i := range callers {
		call := c.call(i)
		some, _ := c.store.split(call, txs[i*each:(i+1)*each])
		bySlot(call, some)
		parts = append(parts, some...)
	}
	all := invocationsOf(parts)
	if len(all) != 1 {
		c.Fatalf("%d script calls, want one", len(all))
	}
	all[0].script = c.store.scriptOf(all[0])
	keys, args := c.store.argsOf(all[0])
	return scriptCall{all[0].script, keys, args}
}

// do carries out calls and returns their replies.
func (c *benchCalls) do(calls []scriptCall) []any {
	replies := make([]any, 0, len(calls))
	for begin := 0; begin < len(calls); begin += piped {
		pipe := c.store.client.Pipeline()
		for _, call := range calls[begin:min(begin+piped, len(calls))] {
			_ = pipe.Process(c.Context(), call.script.call(c.Context(), new(sent), false, call.keys, call.args))
		}
		cmds, err := pipe.Exec(c.Context())
		if err != nil {
			c.Fatal(err)
		}
		for _, cmd := range cmds {
			replies = append(replies, cmd.(*goredis.Cmd).Val())
		}
	}
	return replies
}

func (c *benchCalls) inserts(tasks, batch, callers int) []scriptCall {
	var calls []scriptCall
	for range tasks / batch {
		calls = append(calls, c.applies(c.txs(batch), callers))
	}
	return calls
}

type claimCall struct {
	req storage.ClaimRequest
	ask ask
}

func (c *benchCalls) claims(calls, most int) []claimCall {
	var all []claimCall
	for range calls {
		queues := []storage.ClaimQueue{{Name: "mail"}}
		all = append(all, claimCall{storage.ClaimRequest{
			Call: c.call(0), Token: storage.NewToken(), Runner: "host.example-1234-0f0f0f0f",
			Queues: queues, Start: most, Suspect: true, Lease: time.Minute,
		}, ask{&group{queues: queues}, 0, most, most, give}})
	}
	return all
}

// asks returns the script calls of claims.
func (c *benchCalls) asks(claims []claimCall) []scriptCall {
	calls := make([]scriptCall, len(claims))
	for i := range claims {
		keys, args := c.store.claimArgs(&claims[i].req, claims[i].ask)
		calls[i] = scriptCall{&c.store.scripts.claim, keys, args}
	}
	return calls
}

// take carries out claims and returns the completions of each.
func (c *benchCalls) take(claims []claimCall, want int) [][]storage.Tx {
	var all [][]storage.Tx
	for i, reply := range c.do(c.asks(claims)) {
		answer, err := c.store.readClaim(&claims[i].req, claims[i].ask, reply)
		if err != nil {
			c.Fatal(err)
		}
		var txs []storage.Tx
		for _, f := range answer.Fences {
			txs = append(txs, storage.Tx{Settles: []storage.Settle{{Fence: f, Outcome: storage.Complete}}})
		}
		if len(txs) == 0 && want > 0 {
			break
		}
		all = append(all, txs)
	}
	return all
}

func (c *benchCalls) completions(all [][]storage.Tx) []scriptCall {
	var calls []scriptCall
	for _, txs := range all {
		calls = append(calls, c.applies(txs, 1))
	}
	return calls
}

func (c *benchCalls) settle(all [][]storage.Tx) { c.do(c.completions(all)) }

func (c *benchCalls) tasks(batch int) int { return max(c.N/batch, 1) * batch }

func (c *benchCalls) insert(batch int) {
	tasks := c.tasks(batch)
	c.measure(tasks, c.inserts(tasks, batch, 1))
}

func (c *benchCalls) combined(callers int) {
	tasks := c.tasks(callers)
	c.measure(tasks, c.inserts(tasks, callers, callers))
}

func (c *benchCalls) claim(batch int) {
	tasks := c.tasks(batch)
	c.do(c.inserts(tasks, min(tasks, insertOps), 1))
	c.measure(tasks, c.asks(c.claims(tasks/batch, batch)))
}

func (c *benchCalls) complete(batch int) {
	tasks := c.tasks(batch)
	c.do(c.inserts(tasks, min(tasks, insertOps), 1))
	c.measure(tasks, c.completions(c.take(c.claims(tasks/batch, batch), batch)))
}

func (c *benchCalls) empty() { c.measure(c.N, c.asks(c.claims(c.N, 8))) }

// measure reports the server's time for calls, divided by n.
func (c *benchCalls) measure(n int, calls []scriptCall) {
	script, server := c.spent()
	c.ResetTimer()
	c.do(calls)
	c.StopTimer()
	scripts, servers := c.spent()
	c.ReportMetric((scripts-script)/float64(n), "script-µs")
	c.ReportMetric((servers-server)/float64(n), "server-µs")
	c.ReportMetric(0, "ns/op")
}

// spent returns the server's microseconds in scripts and in all.
func (c *benchCalls) spent() (script, server float64) {
	text, err := c.store.client.Info(c.Context(), "cpu", "commandstats").Result()
	if err != nil {
		c.Fatal(err)
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "used_cpu_sys", "used_cpu_user":
			seconds, _ := strconv.ParseFloat(value, 64)
			server += seconds * 1e6
		case "cmdstat_evalsha":
			_, usec, _ := strings.Cut(value, "usec=")
			usec, _, _ = strings.Cut(usec, ",")
			script, _ = strconv.ParseFloat(usec, 64)
		}
	}
	return script, server
}
