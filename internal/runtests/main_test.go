package main

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const events = `
{"Action":"build-output","ImportPath":"m/bad","Output":"bad.go:1: no\n"}
{"Action":"start","Package":"m/a"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"quiet\n"}
{"Action":"pass","Package":"m/a","Test":"TestGood/part","Elapsed":7.5}
{"Action":"pass","Package":"m/a","Test":"TestGood","Elapsed":0.25}
{"Action":"output","Package":"m/a","Test":"TestSkip","Output":"--- SKIP: TestSkip\n"}
{"Action":"skip","Package":"m/a","Test":"TestSkip"}
{"Action":"output","Package":"m/a","Test":"TestBad","Output":"got 1, want 2\n"}
{"Action":"fail","Package":"m/a","Test":"TestBad","Elapsed":1}
{"Action":"output","Package":"m/a","Output":"PASS\n"}
{"Action":"output","Package":"m/a","Output":"ok  \tm/a\t0.1s\n"}
{"Action":"pass","Package":"m/a","Elapsed":9}
{"Action":"output","Package":"m/b","Output":"?   \tm/b\t[no test files]\n"}
{"Action":"skip","Package":"m/b"}
{"Action":"output","Package":"m/c","Test":"TestHung","Output":"panic: test timed out\n"}
`

func TestReportCountsSkippedTests(t *testing.T) {
	var out strings.Builder
	rep := report{out: &out}
	skipped, err := rep.read(strings.NewReader(strings.TrimSpace(events)))
	if skipped != 1 || err != nil {
		t.Errorf("read = %d, %v, want one skipped test", skipped, err)
	}
	rep.close(90 * time.Second)
	want := "bad.go:1: no\n--- SKIP: TestSkip\ngot 1, want 2\nok  \tm/a\t0.1s\n?   \tm/b\t[no test files]\n" +
		"panic: test timed out\n" +
		"The slowest tests:\n    1.0s  m/a TestBad\n    0.2s  m/a TestGood\n    0.0s  m/a TestSkip\n3 tests in 1m30s\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	if _, err := rep.read(strings.NewReader("FAIL")); err == nil {
		t.Error("read of text that is not JSON = nil, want an error")
	}
}

func TestASkippedTestOfAnyLaneFailsTheWhole(t *testing.T) {
	skips := []run{{args: []string{"-run", "^TestSkips$", "./testdata/skips"}, nice: true}}
	for _, c := range []struct {
		lanes  []lane
		shared []run
	}{{[]lane{{}, skips}, nil}, {[]lane{{}, {}}, skips}} {
		var out strings.Builder
		err := runAll(context.Background(), &out, c.lanes, c.shared, time.Now())
		if err == nil || !strings.Contains(err.Error(), "1 tests were skipped") || !strings.Contains(out.String(), "SKIP: TestSkips") {
			t.Errorf("got %v, printed %q; want the skipped test", err, out.String())
		}
	}
	if err := runAll(context.Background(), io.Discard, []lane{{{args: []string{"./no/such/package"}}}}, nil, time.Now()); err == nil {
		t.Error("a package that does not exist: got nil, want an error")
	}
}

// TestThePlanRunsEachPackageOnce searches the plan for each folder with tests. The root of the
// repository is two folders above.
func TestThePlanRunsEachPackageOnce(t *testing.T) {
	runs := make(map[string]int) // by folder
	for _, r := range planned(t) {
		if value(r, "-run") == "" { // a run of the tests that another run skips
			for _, pkg := range packages(r) {
				runs[pkg]++
			}
		}
	}
	for _, dir := range tested(t) {
		if n := runs[dir]; n != 1 {
			t.Errorf("%s: runs %d times, want once", dir, n)
		}
	}
}

// TestTheTestsThatARunSkipsAreRun searches the runs of these tests alone for each test that a run skips.
func TestTheTestsThatARunSkipsAreRun(t *testing.T) {
	all := planned(t)
	for _, r := range all {
		pattern := value(r, "-skip")
		if pattern == "" {
			continue
		}
		var alone []string
		for _, other := range all {
			if value(other, "-run") == pattern {
				alone = append(alone, packages(other)...)
			}
		}
		skipped := regexp.MustCompile(pattern)
		for _, dir := range packages(r) {
			for _, name := range testsOf(t, dir) {
				if skipped.MatchString(name) && !slices.Contains(alone, dir) {
					t.Errorf("%s of %s is skipped, and no run has it alone", name, dir)
				}
			}
		}
	}
}

// planned returns all runs of the plan.
func planned(t *testing.T) (runs []run) {
	t.Helper()
	t.Chdir("../..")
	lanes, shared, err := plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return append(slices.Concat(lanes...), shared...)
}

// value returns the value of a flag of a run, and "" if the run does not have the flag.
func value(r run, flag string) string {
	at := slices.Index(r.args, flag)
	if at < 0 {
		return ""
	}
	return r.args[at+1]
}

// declared matches the declaration of a test.
var declared = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// testsOf returns the names of the tests in a folder.
func testsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range declared.FindAllStringSubmatch(string(text), -1) {
			names = append(names, match[1])
		}
	}
	return names
}

// packages returns the folders of a run's packages.
func packages(r run) (dirs []string) {
	for _, arg := range r.args {
		if !strings.HasPrefix(arg, ".") {
			continue
		}
		within, all := strings.CutSuffix(arg, "/...")
		dirs = append(dirs, path.Join(r.dir, within))
		if all {
			dirs = append(dirs, below(path.Join(r.dir, within))...)
		}
	}
	return dirs
}

// below returns the folders below a folder that belong to its module.
func below(dir string) (dirs []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		inner := path.Join(dir, e.Name())
		if _, err := os.Stat(path.Join(inner, "go.mod")); e.IsDir() && err != nil {
			dirs = append(append(dirs, inner), below(inner)...)
		}
	}
	return dirs
}

// tested returns the folders that have tests.
func tested(t *testing.T) (dirs []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "testdata" || name != "." && strings.HasPrefix(e.Name(), ".")):
			return fs.SkipDir
		case strings.HasSuffix(name, "_test.go") && !slices.Contains(dirs, path.Dir(name)):
			dirs = append(dirs, path.Dir(name))
		}
		return nil
	})
	if err != nil || len(dirs) < 50 {
		t.Fatalf("got %d folders with tests: %v", len(dirs), err)
	}
	return dirs
}
