package redis

import "time"

// WithoutShortWays returns cfg for a storage whose calls all go the general way of each script.
func WithoutShortWays(cfg Config) Config {
	cfg.ways.general = true
	return cfg
}

// WithReindexEvery returns cfg for a storage whose claims search for unindexed records that often.
func WithReindexEvery(cfg Config, every time.Duration) Config {
	cfg.ways.reindex = every
	return cfg
}

// WithMostVoid returns cfg for a storage of which one step removes or passes over at most n void entries
// of a line, so that a test needs few of them.
func WithMostVoid(cfg Config, n int) Config {
	cfg.ways.mostVoid = n
	return cfg
}

// WithClusterTimeout bounds reads and writes on a Cluster by d.
func WithClusterTimeout(cfg Config, d time.Duration) Config {
	cfg.timeout = d
	return cfg
}
