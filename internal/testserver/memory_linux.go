package testserver

import "syscall"

// memoryLeast is how many bytes must be free in memory for a server's data. Data and log of the servers of
// several test programs grow to some hundred megabytes each.
const memoryLeast = 4 << 30

// inMemory returns a directory whose files are in memory, or "" if there is none with enough space.
func inMemory() string {
	const dir = "/dev/shm"
	var found syscall.Statfs_t
	if err := syscall.Statfs(dir, &found); err != nil || found.Bavail*uint64(found.Bsize) < memoryLeast {
		return ""
	}
	return dir
}
