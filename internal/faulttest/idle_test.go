//go:build unix

package faulttest

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/internal/testserver"
)

// TestAnIdleRunnerIsQuick checks that an idle runner starts a new task within milliseconds. It
// does not run in parallel with other tests, only on its servers at the same time, so that it
// measures midge and not its neighbours.
func TestAnIdleRunnerIsQuick(t *testing.T) {
	require(t)
	for _, k := range []kind{oneRedis, aCluster, onePostgres} {
		t.Run(string(k), func(t *testing.T) {
			testserver.Parallel(t)
			f := idleRunner(t, sharedServer(t, k))
			quick(t, f)
			checkRuns(t, f.history())
		})
	}
}

// idleRunner starts a runner that has run one task.
func idleRunner(t *testing.T, s *server) *fleet {
	t.Helper()
	f := newFleet(t, s)
	f.start(workerConfig{Queues: []string{"q"}, Concurrency: 10})
	f.enqueue("q", "first", stepJob{})
	f.awaitWhat("", runEnd, 1, 20*time.Second)
	return f
}

// quick measures how long an idle runner takes to start tasks. It waits for each start before
// the next enqueue, so that the runner is idle again.
func quick(t *testing.T, f *fleet) {
	t.Helper()
	const tasks = 100
	begun := time.Now()
	var delays, late []time.Duration
	for i := range tasks {
		id := fmt.Sprint("now-", i)
		delays = append(delays, f.startDelay(id))
	}
	for i := range tasks / 2 {
		id := fmt.Sprint("soon-", i)
		const in = 50 * time.Millisecond
		delay := f.startDelay(id, midge.In(in))
		if delay < in {
			t.Errorf("a task due in %v started after %v", in, delay)
		}
		late = append(late, delay-in)
	}
	slices.Sort(delays)
	slices.Sort(late)
	t.Logf("start after an enqueue elsewhere: p50 %v, p99 %v", delays[tasks/2], delays[tasks*99/100])
	t.Logf("start after the moment of a task due in 50ms: p50 %v, last %v", late[len(late)/2], late[len(late)-1])
	bound := machine.Stretch(20*time.Millisecond, begun)
	if p50 := delays[tasks/2]; p50 > bound {
		t.Errorf("the median start is %v after the enqueue, want milliseconds", p50)
	}
	if p50 := late[len(late)/2]; p50 > bound {
		t.Errorf("the median start is %v after the moment, want milliseconds", p50)
	}
}

// TestAnIdleRunnerIsQuiet checks that an idle runner sends at most two commands a second, and in
// a Cluster one more, by which go-redis finds a replica that has taken over.
func TestAnIdleRunnerIsQuiet(t *testing.T) {
	require(t)
	t.Parallel()
	for _, k := range []kind{oneRedis, aCluster} {
		t.Run(string(k), func(t *testing.T) {
			testserver.Parallel(t)
			quiet(t, ownServer(t, k, testserver.Options{}))
		})
	}
	t.Run(string(onePostgres), func(t *testing.T) {
		testserver.Parallel(t)
		logging := testserver.PostgresOptions{Config: []string{"log_statement = 'all'"}}
		quiet(t, &server{kind: onePostgres, nodes: []node{testserver.Postgres(t, logging)}})
	})
}

func quiet(t *testing.T, s *server) {
	t.Helper()
	idleRunner(t, s)
	const period = 10 * time.Second
	commands := s.commands(t, period)
	t.Logf("%d commands in %v without work: %v", len(commands), period, commands)
	most, reloads := int(2*period/time.Second), 0
	if s.kind == onePostgres { // a claim, a check of its connection, and a sweep of several statements
		most *= 2
	}
	if s.kind == aCluster {
		all := len(commands)
		commands = slices.DeleteFunc(commands, func(c string) bool { return strings.EqualFold(c, `"CLUSTER" "SLOTS"`) })
		reloads = all - len(commands)
	}
	setUp := func(c string) bool { // of a connection, which a loaded machine makes late
		c = strings.ToLower(c)
		return strings.HasPrefix(c, `"hello"`) || strings.HasPrefix(c, `"client" "setname"`) || strings.HasPrefix(c, `"subscribe"`)
	}
	before := len(commands)
	commands = slices.DeleteFunc(commands, setUp)
	if n := before - len(commands); n > 9 { // three for each
		t.Errorf("an idle runner sent %d commands that set connections up in %v, want a few at its start", n, period)
	}
	if reloads > int(period/time.Second)+1 {
		t.Errorf("an idle runner asked %d times for the nodes of its Cluster in %v, want once a second", reloads, period)
	}
	if len(commands) > most {
		t.Errorf("an idle runner sent %d commands in %v, want at most %d:\n%s", len(commands), period, most, strings.Join(commands, "\n"))
	}
}

// startDelay enqueues a task and returns the time from the begin of the call to the start of
// the job.
func (f *fleet) startDelay(id string, opts ...midge.Option) time.Duration {
	f.t.Helper()
	begun := time.Now()
	ref := f.enqueue("q", id, stepJob{}, opts...)
	h := f.await(id+" has run", 10*time.Second, func(h history) bool { return len(h.of(runEnd).about(ref)) > 0 })
	return h.of(runStart).about(ref)[0].At.Sub(begun)
}

// commands returns the commands that clients send to the server within a time, without the server's own
// commands and the commands of scripts.
func (s *server) commands(t *testing.T, within time.Duration) []string {
	t.Helper()
	if s.kind == onePostgres {
		return statements(t, s.nodes[0].(*testserver.PostgresServer), within)
	}
	lines := make(chan string, 1000)
	deadline := time.Now().Add(within)
	for _, node := range s.nodes {
		conn, err := net.Dial("tcp", node.Addr())
		must(t, err)
		must(t, conn.SetDeadline(deadline))
		_, err = conn.Write([]byte("MONITOR\r\n"))
		must(t, err)
		go func() { // ends with the connection's deadline
			defer func() { lines <- "" }()
			defer func() { _ = conn.Close() }()
			for in := bufio.NewScanner(conn); in.Scan(); {
				lines <- in.Text()
			}
		}()
	}
	var commands []string
	for open := len(s.nodes); open > 0; {
		line := <-lines
		_, command, ok := strings.Cut(line, "] ")
		switch {
		case line == "":
			open--
		case !ok || strings.Contains(line, " lua] "):
		default:
			commands = append(commands, command[:min(len(command), 60)])
		}
	}
	return commands
}
