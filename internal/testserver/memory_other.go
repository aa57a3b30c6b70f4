//go:build !linux

package testserver

// InMemory returns "": there is no directory whose files are in memory.
func InMemory() string { return "" }
