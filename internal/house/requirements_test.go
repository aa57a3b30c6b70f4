package house

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// requirements are the modules that the root's go.mod names, and so all modules that go get of
// midge downloads. A package that needs another module must be in a module of its own.
var requirements = []string{
	"github.com/alicebob/miniredis/v2", // only tests
	"github.com/cespare/xxhash/v2",
	"github.com/fsnotify/fsnotify",
	"github.com/jackc/pgpassfile",
	"github.com/jackc/pgservicefile",
	"github.com/jackc/pgx/v5",
	"github.com/jackc/puddle/v2",
	"github.com/redis/go-redis/v9",
	"github.com/robfig/cron/v3",
	"github.com/vmihailenco/msgpack/v5",
	"github.com/vmihailenco/tagparser/v2",
	"github.com/yuin/gopher-lua", // only tests
	"go.uber.org/atomic",
	"go.uber.org/goleak", // only tests
	"go.uber.org/multierr",
	"go.uber.org/zap",
	"golang.org/x/sync",
	"golang.org/x/sys",
	"golang.org/x/text",
}

func TestTheRootRequiresNoOtherModules(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^(?:require )?\s*(\S+\.\S+/\S+) v[0-9]`).FindAllStringSubmatch(string(text), -1) {
		found[m[1]] = true
	}
	if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, requirements) {
		t.Errorf("go.mod requires other modules than the list here:\n%s", difference(lines(requirements), lines(got)))
	}
}

func lines(all []string) string { return strings.Join(all, "\n") }
