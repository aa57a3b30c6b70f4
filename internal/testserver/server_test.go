package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustDo(t *testing.T, server *Server, want string, args ...string) {
	t.Helper()
	if got, err := server.Do(args...); err != nil || got != want {
		t.Fatalf("%v = %q, %v, want %q", args, got, err, want)
	}
}

func TestServerOutlivesKillAndRestart(t *testing.T) {
	Require(t)
	server := Redis(t, "appendonly yes", "appendfsync always")
	addr, pid := server.Addr(), server.Pid()
	mustDo(t, server, "OK", "SET", "a", "1")
	must(t, server.Kill())
	must(t, server.Kill())
	if _, err := server.Do("PING"); err == nil {
		t.Fatal("a killed server answers")
	}
	must(t, server.Restart())
	mustDo(t, server, "1", "GET", "a")
	must(t, server.Restart())
	mustDo(t, server, "1", "GET", "a")
	if server.Addr() != addr || server.Pid() == pid {
		t.Errorf("restarted at %s as %d, want at %s and not as %d", server.Addr(), server.Pid(), addr, pid)
	}
}

func TestServerPausesAndResumes(t *testing.T) {
	Require(t)
	server := Redis(t)
	must(t, server.Resume())
	must(t, server.Pause())
	client := dial(t, server.Addr())
	client.send(request("PING"))
	client.wantSilence()
	must(t, server.Resume())
	client.want([]byte("+PONG\r\n"))
	must(t, server.Pause())
	must(t, server.Stop())
	if err := server.Pause(); err == nil {
		t.Error("Pause of a stopped server = nil, want an error")
	}
}

func TestStartTakesConfigAndReportsAWrongOne(t *testing.T) {
	Require(t)
	server := Redis(t, "maxmemory 20mb", "save 60 1")
	mustDo(t, server, "maxmemory\n20971520", "CONFIG", "GET", "maxmemory")
	if _, err := Start(Options{Config: []string{"no-such-thing yes"}}); err == nil ||
		!strings.Contains(err.Error(), "no-such-thing") {
		t.Errorf("Start with a wrong line = %v, want the server's own words", err)
	}
}

func TestCloseDeletesItsDirectory(t *testing.T) {
	Require(t)
	server, err := Start(Options{})
	must(t, err)
	must(t, server.Close())
	must(t, server.Close())
	if _, err := os.Stat(server.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat of the data directory = %v, want that it does not exist", err)
	}
}

func TestProxyInFrontOfRedis(t *testing.T) {
	Require(t)
	server := Redis(t)
	proxy := NewProxy(t, server.Addr())
	proxy.CutAfterRequest(Command("INCR"), 1)
	client := dial(t, proxy.Addr())
	client.send(request("HELLO", "3"), get, incr)
	Await(t, "INCR is executed", func() bool { n, _ := server.Do("GET", "n"); return n == "1" })

	listener := dial(t, proxy.Addr())
	listener.send(request("SUBSCRIBE", "c"))
	listener.want([]byte("*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"))
	for range 3 {
		mustDo(t, server, "1", "PUBLISH", "c", "hello")
		listener.want([]byte("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n"))
	}
	proxy.CutAfterRequest(Command("PING"), 1)
	listener.send(request("PING"))
	listener.wantClosed()
}

func TestClusterServesAndSurvivesANode(t *testing.T) {
	Require(t)
	cluster := Cluster(t, "appendonly yes")
	seen := map[*Server]bool{}
	for i := range 20 {
		key := fmt.Sprintf("midge:{q%d}:x", i)
		owner, err := cluster.Owner(key)
		must(t, err)
		mustDo(t, owner, "OK", "SET", key, "1")
		seen[owner] = true
	}
	if len(seen) != Masters || len(cluster.Addrs()) != Masters {
		t.Errorf("20 keys lie on %d of %d nodes, want %d", len(seen), len(cluster.Addrs()), Masters)
	}
	node := cluster.Nodes()[0]
	must(t, node.Kill())
	_, err := cluster.Owner("a")
	must(t, err)
	must(t, node.Restart())
	must(t, cluster.AwaitReady())
	if _, err := StartCluster(Options{Dir: t.TempDir()}); err == nil {
		t.Error("StartCluster with a directory = nil, want an error")
	}
}

// orphan is the environment variable that makes the test binary start a server, print
// its address and wait to be killed.
const orphan = "MIDGE_TEST_ORPHAN"

func TestServerDiesWithItsTest(t *testing.T) {
	Require(t)
	if os.Getenv(orphan) != "" {
		fmt.Println("addr", Redis(t).Addr())
		select {}
	}
	exe, err := os.Executable()
	must(t, err)
	child := exec.Command(exe, "-test.run=^TestServerDiesWithItsTest$")
	child.Env = append(os.Environ(), orphan+"=1", "TMPDIR="+t.TempDir())
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	lines := bufio.NewScanner(out)
	addr, found := "", false
	for !found && lines.Scan() {
		addr, found = strings.CutPrefix(lines.Text(), "addr ")
	}
	_, alive := Do(addr, "PING")
	must(t, child.Process.Kill())
	_ = child.Wait()
	if !found || alive != nil {
		t.Fatalf("the server at %q did not live before its test was killed: %v", addr, alive)
	}
	Await(t, "the server has died with its test", func() bool { _, err := Do(addr, "PING"); return err != nil })
}
