//go:build !long

package difftest

// How many sequences, and how long.
const (
	seeds = 10
	steps = 500
)
