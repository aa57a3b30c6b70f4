package testserver

import "syscall"

// memoryLeast is how many bytes must be free in memory. The data and logs of the servers of several test
// programs grow to some hundred megabytes each, and a linked test program takes up to a hundred.
const memoryLeast = 6 << 30

// InMemory returns a directory whose files are in memory, or "" if there is none with enough space in which
// programs may be started.
func InMemory() string {
	const dir, noExec = "/dev/shm", 8 // ST_NOEXEC of statfs(2)
	var found syscall.Statfs_t
	err := syscall.Statfs(dir, &found)
	if err != nil || found.Flags&noExec != 0 || found.Bavail*uint64(found.Bsize) < memoryLeast {
		return ""
	}
	return dir
}
