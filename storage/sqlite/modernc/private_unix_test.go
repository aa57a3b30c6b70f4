//go:build unix

package modernc_test

import (
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/midgehq/midge/storage/sqlite"
	"github.com/midgehq/midge/storage/sqlite/modernc"
)

// TestOthersReadNoTasks makes files under masks that take nothing, or little, from the permissions of new files.
// SQLite creates the log and its index with the permissions of the file.
func TestOthersReadNoTasks(t *testing.T) {
	for what, begin := range map[string]func(path string) (want fs.FileMode){
		"a new file": func(string) fs.FileMode { return 0o600 },
		"a link to a new file": func(path string) fs.FileMode {
			must(t, os.Symlink(path+".far", path))
			return 0o600
		},
		"a file that is there": func(path string) fs.FileMode {
			must(t, os.WriteFile(path, nil, 0o600))
			must(t, os.Chmod(path, 0o660)) // as the page of the storage has it for a group
			return 0o660
		},
	} {
		for _, mask := range []int{0, 0o022} {
			for whose, opens := range map[string]func(path string){
				"a file of the storage's own": func(path string) { must(t, open(t, path).insert(t.Context(), "a")) },
				"the application's database": func(path string) {
					db, err := modernc.OpenDB(path)
					must(t, err)
					t.Cleanup(func() { _ = db.Close() })
					must(t, sqlite.Migrate(t.Context(), sqlite.Config{DB: db}))
					must(t, opened(t, sqlite.Config{DB: db}).insert(t.Context(), "a"))
				},
			} {
				path := file(t)
				want := begin(path)
				before := syscall.Umask(mask)
				opens(path)
				syscall.Umask(before)
				at := path
				if to, err := os.Readlink(path); err == nil {
					at = to
				}
				for _, name := range []string{at, at + "-wal", at + "-shm"} {
					info, err := os.Stat(name)
					must(t, err)
					if got := info.Mode().Perm(); got != want {
						t.Errorf("%s, umask %03o: %s as %s has the permissions %v, want %v", what, mask, name, whose, got, want)
					}
				}
			}
		}
	}
}
