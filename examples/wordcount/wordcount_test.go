package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/midgehq/midge/examples/internal/store"
	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// TestMain also runs the mapper, if a test has started this program as one.
func TestMain(m *testing.M) {
	if name := os.Getenv(envMapper); name != "" {
		if err := mapperMain(context.Background(), name, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestCountsAreRightWhileGoroutinesAreKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := config{docs: 60, mappers: 4, parts: 3, kills: 8}
		out := counted(t, "", cfg)
		if !strings.Contains(out, "8 mappers were killed") {
			t.Errorf("got %s, want 8 mappers killed", out)
		}
	})
}

func TestCountsAreRightWhileProcessesAreKilled(t *testing.T) {
	testserver.Require(t)
	server := testserver.Redis(t)
	cfg := config{docs: 40, mappers: 3, parts: 2, kills: 4}
	cfg.mapperProcess = &process{env: append(os.Environ(), envRedis+"="+server.URL())}
	out := counted(t, server.URL(), cfg)
	if !strings.Contains(out, "4 mappers were killed") {
		t.Errorf("got %s, want 4 mappers killed", out)
	}
}

func TestAWrongCountIsAnError(t *testing.T) {
	var out bytes.Buffer
	err := compare(&out, map[string]int{"the": 2, "moon": 1}, map[string]int{"the": 3, "moon": 1})
	if err == nil || !strings.Contains(out.String(), "the counted 2 times, is there 3 times") {
		t.Errorf("got %v and %q, want an error that names the word", err, out.String())
	}
}

// counted runs a count, which fails if a word is counted wrong, checks that nothing is
// left in the storage, and returns the output.
func counted(t *testing.T, url string, cfg config) string {
	t.Helper()
	opened, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := opened.Close(); err != nil {
			t.Error(err)
		}
	}()
	var out bytes.Buffer
	if err := run(t.Context(), opened, cfg, &out); err != nil {
		t.Fatal(err, "\n", out.String())
	}
	queues, err := opened.Queues(t.Context(), storage.QueuesQuery{})
	if err != nil || len(queues.Names) > 0 {
		t.Errorf("got queues %v, %v, want none left", queues.Names, err)
	}
	return out.String()
}
