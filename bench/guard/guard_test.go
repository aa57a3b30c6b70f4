package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestARatioAboveOneIsFasterOrCheaper(t *testing.T) {
	for _, c := range []struct {
		metric        string
		before, after []float64
		ratio         float64
		least, most   float64
	}{
		{"drain_c100", []float64{100, 200, 300}, []float64{50, 100, 330}, 0.5, 0.5, 1.1},
		{"drain_c100_srvcpu", []float64{4, 4}, []float64{2, 8}, 0.8, 0.5, 2},
		{"idle_cmds", []float64{0, 0}, []float64{0, 0}, 1, 1, 1},
	} {
		r := row{metric: c.metric, before: c.before, after: c.after}
		least, most := r.spread()
		if r.ratio() != c.ratio || least != c.least || most != c.most {
			t.Errorf("%s from %v to %v: ratio %v, pairs from %v to %v; want %v, %v to %v",
				c.metric, c.before, c.after, r.ratio(), least, most, c.ratio, c.least, c.most)
		}
	}
}

func TestATableNamesTheRowsThatFell(t *testing.T) {
	var text strings.Builder
	err := table(&text, []row{
		{"redis", "mixed", first, []float64{100}, []float64{89}},
		{"redis", "drain_c10", first, []float64{100}, []float64{90}},
		{"redis", "latency_idle_p99", first, []float64{1}, []float64{2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")[2:]
	for i, want := range []string{"no |", "yes |", "– |"} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("the row is %q, want its end %q", lines[i], want)
		}
	}
}

func TestAPlanChoosesRows(t *testing.T) {
	p, err := parse([]string{"-quick", "-storages", "redis,sqlite", "-metrics", "drain_c100_*,mixed"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range p.comparisons() {
		got = append(got, c.storage+" "+c.reference+" "+strings.Join(c.metrics, " "))
	}
	want := []string{
		"redis a45efab drain_c100_srvcpu drain_c100_wrkcpu", "redis a45efab mixed",
		"sqlite 2173b82 drain_c100_srvcpu drain_c100_wrkcpu", "sqlite 2173b82 mixed",
	}
	if !slices.Equal(got, want) || p.times != quickTimes {
		t.Errorf("%d times %q, want once %q", p.times, got, want)
	}
	for _, args := range [][]string{{"-times", "0"}, {"-metrics", "none"}, {"-storages", "none"}} {
		if err := run(t.Context(), args); err == nil {
			t.Errorf("%q is no error", args)
		}
	}
}

func TestTheReadmeNamesTheReferences(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range comparisons {
		if !strings.Contains(string(text), "`"+c.reference+"`") {
			t.Errorf("README.md does not name %s, the reference of %s on %s", c.reference, c.metrics[0], c.storage)
		}
	}
}

// The benchmark of a commit is replaced whole; a commit whose adapter has a midge.go keeps its list of
// modules, and the adapter takes the place of the systems. A file of another adapter takes the place of the file of
// its name.
func TestTheBenchmarkOfACommitIsReplaced(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	write := func(folder, name, content string) {
		t.Helper()
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"go.mod", "go.sum", "main.go", "internal/system/system.go", "internal/system/peer.go"} {
		write(from, name, "new")
	}
	write(from, adapters+"/old/midge.go.txt", "adapter")
	write(from, adapters+"/near/peer.go.txt", "adapter")
	for _, commit := range []string{"old", "near", "recent"} {
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"go.mod", "go.sum", "main.go", "gone.go"} {
			write(to, name, "old")
		}
		if err := transplant(from, to, commit); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			"go.mod": "new", "go.sum": "new", "main.go": "new", "gone.go": "", "internal/system/system.go": "new",
			"internal/system/peer.go": "new", "internal/system/midge.go": "",
		}
		if commit == "old" {
			want["go.mod"], want["go.sum"] = "old", "old"
			want["internal/system/peer.go"], want["internal/system/midge.go"] = "", "adapter"
		}
		if commit == "near" {
			want["internal/system/peer.go"] = "adapter"
		}
		for name, content := range want {
			got, err := os.ReadFile(filepath.Join(to, filepath.FromSlash(name)))
			if string(got) != content || (content == "") != os.IsNotExist(err) {
				t.Errorf("%s of the %s commit is %q, want %q (%v)", name, commit, got, content, err)
			}
		}
	}
}

func TestAFailedCommandIsNamedWithItsOutput(t *testing.T) {
	_, err := output(context.Background(), ".", "go", "no-such-command")
	if err == nil || !strings.Contains(err.Error(), "go no-such-command") ||
		!strings.Contains(err.Error(), "unknown command") {
		t.Errorf("the error is %v, want the command and its output", err)
	}
}
