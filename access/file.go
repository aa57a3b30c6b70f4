package access

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/midgehq/midge/internal/private"
)

// recheck is how long a file is believed to be unchanged before it is checked again.
const recheck = 2 * time.Second

// maxFile bounds a file of users or tokens, in bytes.
const maxFile = 4 << 20

// file is a file of secrets that other processes may replace. It is read and parsed again soon after it has
// changed. While it cannot be read, only the error is returned: its earlier contents let nobody in.
type file[T any] struct {
	path  string
	parse func(text string) (T, error)
	fixed bool // value is all there is, and path is none

	mu     sync.Mutex // guards the fields below
	looked time.Time
	seen   fs.FileInfo
	value  T
	err    error
}

// get returns the parsed file, which may be recheck old.
func (f *file[T]) get() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fixed || !f.looked.IsZero() && time.Since(f.looked) < recheck {
		return f.value, f.err
	}
	return f.readLocked()
}

// again reads and parses the file now.
func (f *file[T]) again() (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = nil
	return f.readLocked()
}

func (f *file[T]) readLocked() (T, error) {
	f.looked = time.Now()
	info, err := os.Stat(f.path)
	if err == nil && f.err == nil && f.seen != nil && os.SameFile(info, f.seen) &&
		info.ModTime().Equal(f.seen.ModTime()) && info.Size() == f.seen.Size() && info.Mode() == f.seen.Mode() {
		return f.value, nil
	}
	var text string
	if err == nil {
		text, info, err = private.Read(f.path, maxFile)
	}
	var value T
	if err == nil {
		value, err = f.parse(text)
	}
	f.seen, f.value, f.err = info, value, nil
	if err != nil {
		var none T
		f.value, f.err = none, fmt.Errorf("access: read %s: %w", f.path, err)
	}
	return f.value, f.err
}

// replace replaces the text of the file by what alter returns for it. alter gets "" if there is no file yet.
// The new text is written and synced under the path with ".new", and then takes the place of the old file.
// That name can be created only once, so a second process that writes at the same time gets an error.
func (f *file[T]) replace(alter func(text string) (string, error)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("access: write %s: %w", f.path, err)
		}
	}()
	if f.fixed {
		return errors.New("there is no file")
	}
	fresh := f.path + ".new"
	to, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there: another process writes, or was killed while it did; remove it then", fresh)
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = to.Close()
			_ = os.Remove(fresh)
		}
	}()
	text, _, err := private.Read(f.path, maxFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if text, err = alter(text); err != nil {
		return err
	}
	if _, err = f.parse(text); err != nil {
		return err
	}
	if _, err = to.WriteString(text); err != nil {
		return err
	}
	if err = errors.Join(to.Sync(), to.Close()); err != nil {
		return err
	}
	if err = os.Rename(fresh, f.path); err != nil {
		return err
	}
	syncFolder(filepath.Dir(f.path))
	_, err = f.again()
	return err
}

// syncFolder makes a renaming durable, on systems that can sync a folder.
func syncFolder(path string) {
	if d, err := os.Open(path); err == nil {
		_ = d.Sync()
		_ = d.Close()
	}
}
