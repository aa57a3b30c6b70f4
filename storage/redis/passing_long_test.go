//go:build long

package redis

// passingPartitions is how many partitions come and go in the test that nothing is left of them.
const passingPartitions = 1_000_000
