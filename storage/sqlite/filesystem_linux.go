package sqlite

import (
	"path/filepath"
	"syscall"
)

// networks are the file systems whose locks do not hold between machines, or not at all, by their numbers
// in statfs(2).
var networks = map[int64]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0x01021997: "9P", 0x5346414f: "AFS",
	0x00c36400: "Ceph", 0x564c: "NCP", 0x73757245: "Coda", 0x0bd00bd0: "Lustre",
}

// checkFileSystem refuses a file on a network.
func checkFileSystem(path string) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(path), &fs); err != nil {
		return nil //nolint:nilerr // whether the file can be opened is the driver's to say
	}
	return refuseNetwork(path, int64(fs.Type)) //nolint:unconvert // 32 bits on some machines
}

func refuseNetwork(path string, kind int64) error {
	if name, some := networks[kind&0xffffffff]; some {
		return &FileError{Path: path, Problem: Network, Remedy: "put it on a local disk; it is on " + name}
	}
	return nil
}
