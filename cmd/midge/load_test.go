package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge/cmd/midge/internal/cli"
	"github.com/midgehq/midge/cmd/midge/internal/load"
	"github.com/midgehq/midge/internal/payload"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/postgres"
	"github.com/midgehq/midge/storage/redis"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// envLoadRows chooses the number of rows of TestARowIsLoadedOnceByKilledCommands.
const envLoadRows = "MIDGE_TEST_LOAD_ROWS"

// TestARowIsLoadedOnceByKilledCommands loads a file with wrong rows by two commands at a time, and kills 20 of them.
func TestARowIsLoadedOnceByKilledCommands(t *testing.T) {
	t.Parallel()
	testserver.Require(t)
	testserver.RequirePostgres(t)
	rows := 20_000
	if text := os.Getenv(envLoadRows); text != "" {
		if _, err := fmt.Sscan(text, &rows); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	file, want := sample(t, filepath.Join(dir, "orders.jsonl"), rows)
	for name, url := range map[string]string{
		"redis":    testserver.Redis(t).URL(),
		"cluster":  "redis+cluster://" + strings.Join(testserver.Cluster(t).Addrs(), ","),
		"postgres": testserver.Postgres(t, testserver.PostgresOptions{}).URL(),
		"sqlite":   "sqlite:" + filepath.Join(dir, "jobs.db"),
	} {
		t.Run(name, func(t *testing.T) {
			env := on(t, url)
			if got := run(t, env, "", "migrate"); got.code != cli.Done {
				t.Fatalf("migrate: %+v", got)
			}
			wrong := filepath.Join(t.TempDir(), "wrong")
			args := []string{
				"load", file, "--storage", url, "--kind", "bill", "--queue", "bills", "--reject", wrong, "--quiet",
			}
			var kills atomic.Int64
			var loaders sync.WaitGroup
			for range 2 {
				loaders.Go(func() { untilLoaded(t, &kills, args) })
			}
			loaders.Wait()
			t.Logf("%d commands were killed", kills.Load())
			if got := run(t, env, "", args...); got.code != cli.Done || !strings.Contains(got.out, "loaded before") {
				t.Errorf("again: %+v", got)
			}
			checkLoaded(t, open(t, url), rows, want)
			if text, err := os.ReadFile(wrong); err != nil || string(text) != strings.Join(want, "") {
				t.Errorf("the file of wrong rows has %d bytes, want %d; %v", len(text), len(strings.Join(want, "")), err)
			}
		})
	}
}

// sample writes a file of rows, and returns the wrong rows in it: one in 97.
func sample(t *testing.T, path string, rows int) (_ string, wrong []string) {
	t.Helper()
	var b strings.Builder
	for i := range rows {
		if i%97 == 5 {
			row := fmt.Sprintf("{\"id\":%d\n", i)
			wrong = append(wrong, row)
			b.WriteString(row)
			continue
		}
		_, _ = fmt.Fprintf(&b, "{\"id\":%d,\"customer\":\"customer %d\"}\n", i, i%1000)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, wrong
}

// untilLoaded runs the command until it exits with 0. It kills the first ones after a short time.
func untilLoaded(t *testing.T, kills *atomic.Int64, args []string) {
	for range 100 {
		life := time.Hour
		if kills.Load() < 20 {
			life = 50*time.Millisecond + rand.N(300*time.Millisecond)
		}
		ctx, stop := context.WithTimeout(t.Context(), life)
		cmd := exec.CommandContext(ctx, build(t), args...)
		var errs strings.Builder
		cmd.Stderr = &errs
		err := cmd.Run()
		killed := ctx.Err() != nil
		stop()
		switch {
		case err == nil:
			return
		case killed:
			kills.Add(1)
		default:
			t.Errorf("%v: %s", err, errs.String())
			return
		}
	}
	t.Error("the load does not end")
}

// open opens a storage by its URL.
func open(t *testing.T, url string) (store storage.Storage) {
	t.Helper()
	var err error
	switch scheme, rest, _ := strings.Cut(url, ":"); scheme {
	case "redis", "redis+cluster":
		store, err = redis.Open(t.Context(), redis.Config{URL: url})
	case "sqlite":
		store, err = modernc.Open(t.Context(), rest)
	default:
		store, err = postgres.Open(t.Context(), postgres.Config{URL: url})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// checkLoaded checks that each row is one task, by its id and its parameters.
func checkLoaded(t *testing.T, store storage.Storage, rows int, wrong []string) {
	t.Helper()
	seen := make(map[string]bool, rows)
	for task, err := range storage.Each(t.Context(), store, "bills", storage.Waiting) {
		if err != nil {
			t.Fatal(err)
		}
		text := string(task.Payload)
		if seen[text] {
			t.Fatalf("%s is there twice", text)
		}
		seen[text] = true
		var id int
		if _, err := fmt.Sscanf(text, `{"id":%d`, &id); err != nil || task.ID != fmt.Sprintf("orders.jsonl.%010d", id+1) {
			t.Fatalf("%s has the id %s", text, task.ID)
		}
	}
	if n := rows - len(wrong); len(seen) != n {
		t.Errorf("%d rows are there, want %d", len(seen), n)
	}
	marker, err := store.Task(t.Context(), load.MarkerRef("bills", "orders.jsonl"))
	if l, ok := payload.LoadOf(marker); err != nil || !ok || !l.Finished || l.Rows != int64(rows) || l.Rejected != int64(len(wrong)) {
		t.Errorf("the record has %+v, %v", l, err)
	}
}
