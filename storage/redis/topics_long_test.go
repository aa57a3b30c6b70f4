//go:build long

package redis_test

// generalTopics are the topics of the contract that are tested without the short ways: nil for all.
var generalTopics []string

// tears is how often TestATornAppendOnlyFileLosesNoTask tears the file.
const tears = 50
