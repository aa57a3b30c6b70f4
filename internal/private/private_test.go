package private

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestOnlyAFileOfItsOwnerIsRead(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "key")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, info, err := Read(path, 5); err != nil || text != "12345" || info.Size() != 5 {
		t.Errorf("got %q, %v; want the text", text, err)
	}
	for want, read := range map[string]func() error{
		"at most 4 bytes": func() error { _, _, err := Read(path, 4); return err },
		"a regular file":  func() error { _, _, err := Read(folder, 5); return err },
		"no such file":    func() error { _, _, err := Read(path+"x", 5); return err },
	} {
		if err := read(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o660} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Read(path, 5); err == nil || !strings.Contains(err.Error(), "want 0600") {
			t.Errorf("mode %o: got %v, want a refusal", mode, err)
		}
	}
}
