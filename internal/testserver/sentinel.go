package testserver

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Sentinels are a Redis master, its replica, and a sentinel that promotes the replica two
// seconds after the master has stopped answering.
type Sentinels struct{ Master, Replica, Sentinel *Server }

// MasterName is the name of the master that the sentinel knows.
const MasterName = "main"

// Sentinel starts all three servers for the test and stops them when it ends. It returns when
// the replica follows the master and the sentinel knows both. The test fails if they do not
// start.
func Sentinel(t testing.TB) *Sentinels {
	t.Helper()
	s := &Sentinels{Master: Redis(t)}
	s.Replica = Redis(t, fmt.Sprintf("replicaof 127.0.0.1 %d", s.Master.port.port))
	var err error
	s.Sentinel, err = start(Options{Dir: t.TempDir(), Config: []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 1", MasterName, s.Master.port.port),
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

// AwaitInStep waits until the replica has everything that the master had written at the time
// of the call. It returns that time.
func (s *Sentinels) AwaitInStep(t testing.TB) time.Time {
	t.Helper()
	at := time.Now()
	awaitInStep(t, s.Master, s.Replica)
	return at
}

// awaitInStep waits until a replica has everything that its master had written at the time of
// the call.
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

// offset reads the named field, a replication offset in bytes, from the reply to INFO
// replication.
func offset(t testing.TB, info, field string) (n int64) {
	t.Helper()
	_, rest, _ := strings.Cut(info, field+":")
	if _, err := fmt.Sscan(rest, &n); err != nil {
		t.Fatalf("no %s: %v in %q", field, err, info)
	}
	return n
}
