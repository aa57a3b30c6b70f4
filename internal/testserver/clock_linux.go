package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	_ "embed"
)

// clockSource is the C source of the library that servers are started with.
//
//go:embed clock.c.txt
var clockSource []byte

// Clock is the real-time clock of the servers that are started with its Env: the
// machine's clock plus an offset, which may change while they run. Their monotonic clocks
// are not affected. It needs Linux and a C compiler, as the race detector does.
//
// Servers survive jumps of the clock, but every timeout that they measure by the
// real-time clock jumps too: the nodes of a Cluster suspect each other after a jump of
// more than their cluster-node-timeout, and PostgreSQL ends statements with a
// statement_timeout early.
type Clock struct {
	dir    string
	memory []byte // mapped from the file that the servers read
}

// StartClock makes a clock with no offset. The caller closes it, after the servers.
func StartClock() (*Clock, error) {
	dir, err := os.MkdirTemp("", "midge-clock-")
	if err != nil {
		return nil, fmt.Errorf("testserver: make directory of clock: %w", err)
	}
	c := &Clock{dir: dir}
	if err = c.compile(); err == nil {
		err = c.share()
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Env returns the environment variables for a server's process: see [Options].Env and
// [PostgresOptions].Env.
func (c *Clock) Env() []string {
	return []string{"LD_PRELOAD=" + c.libraryPath(), "MIDGE_CLOCK_OFFSET=" + c.offsetPath()}
}

// Set puts the servers' clocks ahead of the machine's, or behind it if the offset is
// negative. It takes effect at once and replaces any earlier offset.
func (c *Clock) Set(ahead time.Duration) { c.offset().Store(ahead.Microseconds()) }

// Ahead returns the current offset.
func (c *Clock) Ahead() time.Duration { return time.Duration(c.offset().Load()) * time.Microsecond }

// Close deletes the clock's files.
func (c *Clock) Close() error {
	var err error
	if c.memory != nil {
		err = syscall.Munmap(c.memory)
		c.memory = nil
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}

func (c *Clock) libraryPath() string { return filepath.Join(c.dir, "clock.so") }
func (c *Clock) offsetPath() string  { return filepath.Join(c.dir, "offset") }

// compile builds the library and makes it readable for all, because a server may run as
// another user.
func (c *Clock) compile() error {
	if err := os.Chmod(c.dir, 0o755); err != nil {
		return fmt.Errorf("testserver: open directory of clock: %w", err)
	}
	source := filepath.Join(c.dir, "clock.c")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return fmt.Errorf("testserver: write clock: %w", err)
	}
	cmd := exec.Command("cc", "-O1", "-shared", "-fPIC", "-o", c.libraryPath(), source, "-ldl")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("testserver: compile clock: %w\n%s", err, out)
	}
	return os.Chmod(c.libraryPath(), 0o755)
}

// share maps the file in which the servers read the offset. With a mapping, a server
// never reads a half-written offset.
func (c *Clock) share() error {
	file, err := os.OpenFile(c.offsetPath(), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("testserver: make offset of clock: %w", err)
	}
	defer func() { _ = file.Close() }()
	size := int(unsafe.Sizeof(atomic.Int64{}))
	if err = errors.Join(file.Truncate(int64(size)), file.Chmod(0o644)); err != nil {
		return fmt.Errorf("testserver: make offset of clock: %w", err)
	}
	c.memory, err = syscall.Mmap(int(file.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("testserver: map offset of clock: %w", err)
	}
	return nil
}

// offset returns the number of microseconds in the file. It is aligned, because a mapping
// begins at a page.
func (c *Clock) offset() *atomic.Int64 { return (*atomic.Int64)(unsafe.Pointer(&c.memory[0])) }
