package redis

// WithoutShortWays gives a Config whose calls go by the general way of each script.
func WithoutShortWays(cfg Config) Config {
	cfg.general = true
	return cfg
}
