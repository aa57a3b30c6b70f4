//go:build !long

package difftest

// The number of sequences, and the number of steps of each.
const (
	seeds = 10
	steps = 500
)
