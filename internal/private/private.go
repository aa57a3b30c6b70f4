// Package private reads and makes files of secrets.
package private

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"sync"
)

// Read reads a file that only its owner may read, and of at most the given number of bytes. info describes the file
// that was read.
func Read(path string, most int64) (text string, info fs.FileInfo, err error) {
	if info, err = os.Stat(path); err == nil {
		err = check(info) // before the open, which waits for a writer of a named pipe
	}
	if err != nil {
		return "", nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err = f.Stat(); err != nil {
		return "", nil, err
	}
	if err := check(info); err != nil {
		return "", nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("want at most %d bytes", most)
	}
	return string(b), info, err
}

// check returns an error if others than the owner may read or write the file. On Windows these bits mean
// nothing for permissions.
func check(info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return errors.New("want a regular file")
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return fmt.Errorf("permissions %#o: want 0600, for its owner alone", mode)
	}
	return nil
}

// making is held while a file is made: closing a file ends the locks that this process has on it, such as those of a
// database which another goroutine opens as soon as the file is there.
var making sync.Mutex

// Make makes an empty file that only its owner may read, unless the file is there. Whoever opens the file after that
// meets the fault if it could not be made.
func Make(path string) {
	making.Lock()
	defer making.Unlock()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	if f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err == nil {
		_ = f.Close()
	}
}
