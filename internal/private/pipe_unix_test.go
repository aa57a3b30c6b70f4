//go:build unix

package private_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/midgehq/midge/internal/private"
)

func TestANamedPipeIsRefusedBeforeItIsOpened(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := private.Read(path, 100); err == nil {
		t.Error("got no error, want a regular file alone")
	}
}
