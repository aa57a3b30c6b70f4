//go:build unix

package sqlite

import (
	"os"
	"syscall"
)

// checkLinks refuses a file with several names. SQLite derives the name of the log from the name of
// the file: two processes that use different names do not see each other's commits, and overwrite
// them.
func checkLinks(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // there is no file yet, or whether it can be opened is the driver's to say
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Nlink > 1 {
		return &FileError{
			Path: path, Problem: Linked,
			Remedy: "remove all names but one while no process has the file open; to share it, mount its folder",
		}
	}
	return nil
}
