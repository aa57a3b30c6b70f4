package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/midgehq/midge/cmd/midge/internal/cli"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// worker is a process of midge work.
type worker struct {
	*exec.Cmd

	said bytes.Buffer
}

// startWork starts a worker of the kind film, whose storage is named by its environment.
func startWork(t *testing.T, url string, args ...string) *worker {
	t.Helper()
	w := &worker{Cmd: exec.CommandContext(t.Context(), build(t), append([]string{
		"work", "--kind", "film", "--queue", "films", "--concurrency", "4",
	}, args...)...)}
	w.Env = append(os.Environ(), "MIDGE_STORAGE="+url, "OTHER_NAME="+url, "PGPASSWORD=s3cret")
	w.Stderr = &w.said
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	return w
}

// end stops a worker by a signal.
func (w *worker) end(t *testing.T) {
	t.Helper()
	if err := w.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := w.Wait(); err != nil || strings.Contains(w.said.String(), "s3cret") {
		t.Errorf("the worker ended with %v, and said\n%s", err, &w.said)
	}
}

// film is a program that fails behind a checkpoint first, and then passes it on as the result.
const film = `
	env | grep -q s3cret && { echo "the environment has a secret" >&2; exit 65; }
	if [ -z "$MIDGE_CHECKPOINT" ]; then echo '{"checkpoint":{"at":7}}' >&3; exit 75; fi
	read params
	case $params in *drain*)
		trap 'echo "{\"checkpoint\":{\"at\":8}}" >&3; exit 0' TERM
		echo '{"progress":{"done":1,"of":2}}' >&3
		while :; do sleep 0.05; done ;;
	*elsewhere*) echo '{"follow_up":{"kind":"thumb","queue":"images"}}' >&3 ;;
	esac
	echo '{"follow_up":{"kind":"thumb","params":{"n":1},"delay_ms":3600000}}' >&3
	printf '{"result":%s}\n' "$(cat $MIDGE_CHECKPOINT)" >&3`

// TestWorkOnEveryStorage runs programs for tasks, and stops the worker within one.
func TestWorkOnEveryStorage(t *testing.T) {
	t.Parallel()
	testserver.Require(t)
	testserver.RequirePostgres(t)
	server := testserver.Redis(t)
	if _, err := server.Do(strings.Fields("ACL SETUSER app reset on >s3cret ~* &* +@all")...); err != nil {
		t.Fatal(err)
	}
	for name, url := range map[string]string{
		"redis":    "redis://app:s3cret@" + server.Addr(),
		"cluster":  "redis+cluster://" + strings.Join(testserver.Cluster(t).Addrs(), ","),
		"postgres": testserver.Postgres(t, testserver.PostgresOptions{}).URL(),
		"sqlite":   "sqlite:" + filepath.Join(t.TempDir(), "jobs.db"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runFilms(t, url)
		})
	}
}

// runFilms runs three tasks of films on a storage.
func runFilms(t *testing.T, url string) {
	t.Helper()
	env := on(t, url)
	if got := run(t, env, "", "migrate"); got.code != cli.Done {
		t.Fatalf("migrate: %+v", got)
	}
	store := open(t, url)
	await := func(what, id string, holds func(storage.Task) bool) (task storage.Task) {
		t.Helper()
		testserver.Await(t, what, func() bool {
			var err error
			task, err = store.Task(t.Context(), storage.Ref{Queue: "films", ID: id})
			if err != nil {
				t.Fatal(err)
			}
			return holds(task)
		})
		return task
	}
	for _, id := range []string{"good", "elsewhere", "drain"} {
		got := run(t, env, "", "task", "add", "film", "--queue", "films", "--id", id, "--retries", "1", "--keep", "1h",
			"--params", `{"what":"`+id+`"}`)
		if got.code != cli.Done {
			t.Fatalf("add: %+v", got)
		}
	}
	w := startWork(t, url, "--drain", "1s", "--", "/bin/sh", "-c", film)
	ended := func(task storage.Task) bool { return task.State.Ended() }
	good := await("the first task has ended", "good", ended)
	if good.State != storage.Completed || string(good.Result) != `{"at":7}` || good.Retries != 1 {
		t.Errorf("%s with %s, %d retries and %q; want it completed", good.State, good.Result, good.Retries, good.LastError())
	}
	other := await("the second task has ended", "elsewhere", ended)
	const refused = "line 1 on file descriptor 3: follow-up in queue images: "
	if spans := storage.Spans(store, "films", "images"); (other.State == storage.Completed) != spans ||
		strings.Contains(other.LastError(), refused) == spans {
		t.Errorf("a follow-up elsewhere: %s with %q", other.State, other.LastError())
	}
	await("the third task runs", "drain", func(task storage.Task) bool { return len(task.Progress) > 0 })
	w.end(t)
	drained := await("it waits again", "drain", func(task storage.Task) bool { return task.State == storage.Waiting })
	if drained.Retries != 1 || drained.Crashes != 0 {
		t.Errorf("the drained task has %d retries and %d crashes, want that of its first attempt", drained.Retries, drained.Crashes)
	}
}

// marked returns the processes with a variable in their environment.
func marked(variable string) (pids []int) {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		env, _ := os.ReadFile(filepath.Join(folder, "environ"))
		pid, _ := strconv.Atoi(filepath.Base(folder))
		if bytes.Contains(append([]byte{0}, env...), []byte("\x00"+variable+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestWorkWithinWork runs a worker as the program of another one, whose task is cancelled, or which is killed.
func TestWorkWithinWork(t *testing.T) {
	t.Parallel()
	url := "sqlite:" + filepath.Join(t.TempDir(), "jobs.db")
	env := on(t, url)
	if got := run(t, env, "", "migrate"); got.code != cli.Done {
		t.Fatalf("migrate: %+v", got)
	}
	add := func(kind, queue, id string) {
		t.Helper()
		if got := run(t, env, "", "task", "add", kind, "--queue", queue, "--id", id); got.code != cli.Done {
			t.Fatalf("add: %+v", got)
		}
	}
	for i, name := range []string{"cancel", "kill"} {
		add("film", "films", name)
		add("part", "parts", name)
		variable := "WORK_TEST=" + name
		w := startWork(t, url, "--env", "MIDGE_STORAGE", "--grace", "1s", "--", "/usr/bin/env", variable, build(t), "work", "--kind", "part",
			"--queue", "parts", "--", "/bin/sh", "-c", "sleep 300 & setsid sleep 300 & wait")
		testserver.Await(t, "all processes run", func() bool { return len(marked(variable)) == 4 })
		if i == 0 {
			if got := run(t, env, "", "task", "cancel", "films/"+name); got.code != cli.Done {
				t.Errorf("cancel: %+v", got)
			}
		} else if err := w.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		testserver.Await(t, "no process is left", func() bool { return len(marked(variable)) == 0 })
		if i == 0 {
			w.end(t)
		} else {
			_ = w.Wait()
		}
	}
}
