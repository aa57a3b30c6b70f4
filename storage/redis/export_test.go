package redis

// WithoutShortWays returns cfg for a storage whose calls all go the general way of each script.
func WithoutShortWays(cfg Config) Config {
	cfg.general = true
	return cfg
}
