//go:build long

package difftest

// The number of sequences, and the number of steps of each.
const (
	seeds = 100
	steps = 3000
)
