//go:build long

package postgres_test

// generalTopics are the topics of the contract that are tested without the short ways: nil for all.
var generalTopics []string
