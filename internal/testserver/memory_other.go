//go:build !linux

package testserver

// inMemory returns "": there is no directory whose files are in memory.
func inMemory() string { return "" }
