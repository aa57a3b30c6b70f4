//go:build long

package modernc_test

// kills is how many processes are killed.
const kills = 200

// passed is how many tasks pass through a file, and window how many of them wait at the same time.
const (
	passed = 2_000_000
	window = 10_000
)

// passingPartitions is how many partitions come and go in the test that nothing is left of them.
const passingPartitions = 1_000_000

// cells are the things that happen to files.
func cells() []cell { return allCells() }
