//go:build !long

package modernc_test

// kills is how many processes are killed.
const kills = 40

// passed is how many tasks pass through a file, and window how many of them wait at the same time.
const (
	passed = 40_000
	window = 2_000
)
