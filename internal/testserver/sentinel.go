package testserver

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Sentinels are a Redis that is the master, one that follows it, and a sentinel that has the
// second take over two seconds after the first has gone silent.
type Sentinels struct{ Master, Replica, Sentinel *Server }

// MasterName is that of the master, as the sentinel knows it.
const MasterName = "main"

// Sentinel starts all three for the test and stops them when it ends. It returns when the
// replica follows and the sentinel knows of both. The test fails where they do not come up.
func Sentinel(t testing.TB) *Sentinels {
	t.Helper()
	s := &Sentinels{Master: Redis(t)}
	s.Replica = Redis(t, fmt.Sprintf("replicaof 127.0.0.1 %d", s.Master.port))
	var err error
	s.Sentinel, err = start(Options{Dir: t.TempDir(), Config: []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 1", MasterName, s.Master.port),
		fmt.Sprintf("sentinel down-after-milliseconds %s 2000", MasterName),
		fmt.Sprintf("sentinel failover-timeout %s 5000", MasterName),
	}}, "--sentinel")
	started(t, s.Sentinel, err)
	s.AwaitInStep(t)
	Await(t, "the sentinel knows the replica", func() bool {
		known, err := s.Sentinel.Do("SENTINEL", "MASTERS")
		return err == nil && strings.Contains(known, "num-slaves\n1\n")
	})
	return s
}

// AwaitInStep waits until the replica has all that the master had written by a moment, and
// gives the moment.
func (s *Sentinels) AwaitInStep(t testing.TB) time.Time {
	t.Helper()
	at := time.Now()
	awaitInStep(t, s.Master, s.Replica)
	return at
}

// awaitInStep waits until a replica has all that its master had written when it was called.
func awaitInStep(t testing.TB, master, replica *Server) {
	t.Helper()
	info, err := master.Do("INFO", "replication")
	if err != nil {
		t.Fatal(err)
	}
	written := offset(t, info, "master_repl_offset")
	Await(t, "the replica is in step", func() bool {
		info, err := replica.Do("INFO", "replication")
		return err == nil && strings.Contains(info, "master_link_status:up") &&
			offset(t, info, "slave_repl_offset") >= written
	})
}

// AwaitPromoted waits until the replica is a master.
func (s *Sentinels) AwaitPromoted(t testing.TB) {
	t.Helper()
	Await(t, "the replica is the master", func() bool {
		role, err := s.Replica.Do("ROLE")
		return err == nil && strings.HasPrefix(role, "master")
	})
}

// offset reads in what a server says of its replication how much it has written, or received.
func offset(t testing.TB, info, field string) (n int64) {
	t.Helper()
	_, rest, _ := strings.Cut(info, field+":")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatalf("no %s: %v in %q", field, err, info)
	}
	return n
}
