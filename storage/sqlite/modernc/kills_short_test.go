//go:build !long

package modernc_test

// kills is how many processes are killed.
const kills = 40

// passed is how many tasks pass through a file, and window how many of them wait at the same time.
const (
	passed = 40_000
	window = 2_000
)

// passingPartitions is how many partitions come and go in the test that nothing is left of them. make test-long has
// a million.
const passingPartitions = 10_000

// cells are the things that happen to files. The test with the tag long has all of them.
func cells() (some []cell) {
	for i, c := range allCells() {
		if c.action != "read-only" && i%3 == 0 {
			some = append(some, c)
		}
	}
	return some
}
