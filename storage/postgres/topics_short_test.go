//go:build !long

package postgres_test

import "time"

// generalTopics are the topics of the contract that are tested without the short ways: inserts, claims and
// completions have short ways, and a claim reads the lines of kinds in both. All other rules take the general
// way with and without them. make test-long tests all topics.
var generalTopics = []string{"insert", "bulk", "claim", "kind", "settle"}

// passingPartitions is how many partitions come and go in the test that nothing is left of them. make test-long has
// a million.
const passingPartitions = 10_000

// passingPer is the Per of the rate by which starts of these partitions count, in the test with a rate.
const passingPer = time.Second
