package command

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTheControlGroupCountsKills reads the counter of the group that a process is in.
func TestTheControlGroupCountsKills(t *testing.T) {
	root := t.TempDir()
	f := groupFiles{own: filepath.Join(root, "own"), root: root}
	if got := f.oomKills(); got != 0 {
		t.Errorf("without files: got %d, want 0", got)
	}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(f.own, "3:cpu:/\n0::/app/worker\n")
	if err := os.MkdirAll(filepath.Join(root, "app", "worker"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(root, "app", "worker", "memory.events"), "low 0\noom 9\noom_kill 7\noom_group_kill 2\n")
	if got := f.oomKills(); got != 7 {
		t.Errorf("got %d, want 7", got)
	}
}
