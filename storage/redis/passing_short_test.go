//go:build !long

package redis

import "time"

// passingPartitions is how many partitions come and go in the test that nothing is left of them. make test-long has
// a million.
const passingPartitions = 10_000

// passingPer is the Per of the rate by which starts of these partitions count, in the test with a rate.
const passingPer = time.Second
