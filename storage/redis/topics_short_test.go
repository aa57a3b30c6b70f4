//go:build !long

package redis_test

// generalTopics are the topics of the contract that are tested without the short ways: inserts, claims and
// completions have short ways, and a claim reads the lines of kinds in both. All other rules take the general
// way with and without them. make test-long tests all topics.
var generalTopics = []string{"insert", "bulk", "claim", "kind", "settle"}

// tears is how often TestATornAppendOnlyFileLosesNoTask tears the file. make test-long tears it 50
// times.
const tears = 12
