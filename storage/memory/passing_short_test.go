//go:build !long

package memory

// passingPartitions is how many partitions come and go in the test that nothing is left of them. make test-long has
// a million.
const passingPartitions = 10_000
