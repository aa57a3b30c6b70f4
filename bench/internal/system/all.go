package system

// All returns the systems in the order in which they take turns.
func All() []System {
	return []System{
		midgeSystem(), asynqSystem(), asynqTuned(), riverSystem(), riverTuned(), bareSystem(),
		watchedSystem("midge-onend", hooked), watchedSystem("midge-metrics", counted),
		watchedSystem("midge-traces", traced),
	}
}
