package open_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/midgehq/midge/storage"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/storage/open"
)

// other is the driver of a storage that an application brings.
type other struct{ err error }

func (other) Scheme() string { return "other" }

func (o other) Open(_ context.Context, url string) (storage.Storage, error) {
	if o.err != nil {
		return nil, fmt.Errorf("%s: %w", url, o.err)
	}
	return memory.Open(memory.Config{})
}

func TestAURLOpensItsStorage(t *testing.T) {
	for _, url := range []string{"memory:", "memory://", "other:somewhere"} {
		store, err := open.Open(t.Context(), url, nil, other{})
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		if d, err := store.Describe(t.Context()); err != nil || d.Storage != "memory" {
			t.Errorf("%s: got %+v, %v; want memory", url, d, err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestAnErrorOfOpenSaysWhichAndNoPassword(t *testing.T) {
	boom := errors.New("boom")
	for url, want := range map[string]string{
		"":                                "open: invalid URL \"without a scheme\": want one that begins with memory, redis, ",
		"hunter2":                         "open: invalid URL \"without a scheme\": want",
		"host=db password=hunter2:x":      "open: invalid URL \"without a scheme\": want",
		"mysql://user:hunter2@localhost":  "open: invalid URL \"mysql:***\": want one that begins with memory, redis, rediss, unix, redis+sentinel, redis+cluster, postgres, other and a colon",
		"memory:hunter2":                  "open: invalid URL \"memory:***\": want memory: alone",
		"redis://user:hunter2@:x":         "redis: open: invalid Config.URL",
		"redis+cluster://user:hunter2@":   "redis: open: invalid Config.URL",
		"postgres://user:hunter2@host:x/": "postgres: open: invalid Config.URL",
		"postgres://u:hunter2@h/?sslmode=x": `postgres: open: invalid Config.URL "***": want a URL such as ` +
			"postgres://localhost/database, special characters of a password percent-encoded, and parameters such as sslmode=",
		"other:": "other:: boom",
	} {
		store, err := open.Open(t.Context(), url, other{boom})
		if err == nil || store != nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, %v; want %s", url, store, err, want)
		}
	}
}

func Example() {
	ctx := context.Background()
	store, err := open.Open(ctx, "memory:") // or redis://localhost:6379, postgres://localhost/app
	if err != nil {
		panic(err)
	}
	defer func() { _ = store.Close() }()
	d, err := store.Describe(ctx)
	fmt.Println(d.Storage, err)
	// Output: memory <nil>
}
