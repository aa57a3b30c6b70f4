package sqlite

import (
	"errors"
	"testing"

	"github.com/midgehq/midge/storage"
)

// TestAFileOnANetworkIsRefused names the file systems by their numbers in Linux.
func TestAFileOnANetworkIsRefused(t *testing.T) {
	const cifsOf32Bits = -0xacb2be
	for name, kind := range map[string]int64{"NFS": 0x6969, "SMB2": 0xfe534d42, "CIFS, signed": cifsOf32Bits} {
		err := refuseNetwork("/mnt/jobs.db", kind)
		var problem *FileError
		if !errors.As(err, &problem) || problem.Problem != Network || !errors.Is(err, storage.ErrRefused) {
			t.Errorf("%s: got %v, want a *FileError: %s", name, err, Network)
		}
	}
	for name, kind := range map[string]int64{"ext4": 0xef53, "tmpfs": 0x01021994, "overlay": 0x794c7630} {
		if err := refuseNetwork("/var/jobs.db", kind); err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
		}
	}
	if err := checkFileSystem(t.TempDir() + "/jobs.db"); err != nil {
		t.Errorf("a folder of this machine: got %v, want no error", err)
	}
}
