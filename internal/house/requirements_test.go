package house

import (
	"io/fs"
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
	_, all := required(t, "go.mod")
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, requirements) {
		t.Errorf("go.mod requires other modules than the list here:\n%s", difference(lines(requirements), lines(got)))
	}
}

// TestModulesRequireTheSameVersions checks that all modules but tools require the same version of Go and of each
// module. Two versions of a module are compiled apart, with everything that imports them.
func TestModulesRequireTheSameVersions(t *testing.T) {
	type requirement struct{ file, version string }
	first := map[string]requirement{}
	for _, file := range modFiles(t) {
		goes, all := required(t, file)
		all["go"] = goes
		for path, version := range all {
			was, ok := first[path]
			switch {
			case strings.HasPrefix(path, module) || file == "tools/go.mod":
			case !ok:
				first[path] = requirement{file, version}
			case was.version != version:
				t.Errorf("%s requires %s %s, and %s %s", file, path, version, was.file, was.version)
			}
		}
	}
}

// required returns the version of Go and the modules that a go.mod requires, with their versions.
func required(t *testing.T, file string) (goes string, all map[string]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	all = map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(?:require )?\s*(\S+\.\S+/\S+) (v[0-9]\S*)`).FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = m[2]
	}
	return regexp.MustCompile(`(?m)^go (\S+)$`).FindString(string(text)), all
}

// modFiles returns the paths of all files go.mod from the root, in order.
func modFiles(t *testing.T) (paths []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root(t)), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && aside(name):
			return fs.SkipDir
		case entry.Name() == "go.mod":
			paths = append(paths, name)
		}
		return nil
	})
	if err != nil || len(paths) < 2 {
		t.Fatalf("%d go.mod found: %v", len(paths), err)
	}
	return paths
}

func lines(all []string) string { return strings.Join(all, "\n") }
