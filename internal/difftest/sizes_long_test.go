//go:build long

package difftest

// How many sequences, and how long.
const (
	seeds = 100
	steps = 3000
)
