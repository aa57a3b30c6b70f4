package postgres_test

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/midgehq/midge/storage/postgres"
)

// sumsFile begins with a version and whether it was released; the release of a version sets that there. The
// sums of all its functions and of the migrations follow.
var sumsFile = filepath.Join("testdata", "functions.sum")

const (
	released   = "released"
	unreleased = "unreleased"
)

var update = flag.Bool("update", false, "rewrite "+sumsFile)

// TestAReleasedFunctionIsNotChanged without a new version: processes of the released version call it
// under the same name. A released migration is not changed at all.
func TestAReleasedFunctionIsNotChanged(t *testing.T) {
	b, err := os.ReadFile(sumsFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(b), "\r\n", "\n")), "\n")
	var of int
	var state string
	if _, err := fmt.Sscanf(lines[0], "version %d %s", &of, &state); err != nil || state != released && state != unreleased {
		t.Fatalf("%s begins with %q, want a version that is %s or %s", sumsFile, lines[0], released, unreleased)
	}
	got := sumsNow(t)
	switch {
	case *update && of != postgres.Version:
		lines = []string{fmt.Sprintf("version %d %s", postgres.Version, unreleased)}
	case *update && state == released && len(lines) == 1:
		lines = append(lines, got...)
	default:
		for _, what := range mistakes(of, state, lines[1:], got) {
			t.Error(what)
		}
		return
	}
	if err := os.WriteFile(sumsFile, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// sumsNow returns a line for each function and migration that a schema is made of.
func sumsNow(t *testing.T) (lines []string) {
	t.Helper()
	for _, dir := range []string{"functions", "view", "tables"} {
		names, texts, err := postgres.Scripts(dir)
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range texts {
			lines = append(lines, fmt.Sprintf("%x %s/%s", sha256.Sum256([]byte(text)), dir, names[i]))
		}
	}
	return lines
}

// mistakes lists forbidden changes: kept are the sums of a version, and got the sums of now.
func mistakes(of int, state string, kept, got []string) (what []string) {
	switch {
	case state == released && len(kept) == 0:
		return []string{fmt.Sprintf("version %d was released, and %s has no sums: run make generate", of, sumsFile)}
	case state == unreleased && of != postgres.Version:
		return []string{fmt.Sprintf("%s is of version %d, and version.go of %d: run make generate", sumsFile, of, postgres.Version)}
	case state == unreleased:
		return nil
	}
	for _, line := range slices.Concat(kept, got) { // a line that has changed is in both
		_, name, _ := strings.Cut(line, " ")
		old := slices.Contains(kept, line)
		switch {
		case old == slices.Contains(got, line):
		case old && strings.HasPrefix(name, "tables/"):
			what = append(what, fmt.Sprintf("%s of version %d has changed: restore it, and write a migration after it", name, of))
		case of == postgres.Version:
			what = append(what, fmt.Sprintf("%s is not that of version %d, which was released: raise version in version.go, "+
				"then run make generate", name, of))
		}
	}
	slices.Sort(what)
	return slices.Compact(what)
}

// TestAChangeIsRefused if it would change functions that a released version calls.
func TestAChangeIsRefused(t *testing.T) {
	was, now := []string{"1 functions/claim", "1 tables/001"}, []string{"2 functions/claim", "2 tables/001"}
	for _, c := range []struct {
		what, state string
		version     int
		kept        []string
		want        int
	}{
		{"nothing", released, postgres.Version, now, 0},
		{"a function and a migration of the version released", released, postgres.Version, was, 3},
		{"a function and a migration after it", released, postgres.Version - 1, was, 1},
		{"what was not released", unreleased, postgres.Version, nil, 0},
		{"the version", unreleased, postgres.Version - 1, nil, 1},
		{"what has no sums", released, postgres.Version, nil, 1},
	} {
		if got := mistakes(c.version, c.state, c.kept, now); len(got) != c.want {
			t.Errorf("where %s has changed: refused %q, want %d", c.what, got, c.want)
		}
	}
}
