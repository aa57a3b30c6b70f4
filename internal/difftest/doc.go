// Package difftest compares the storages with each other. It holds only tests. Seeded random
// sequences of calls of the contract run on the memory storage, one Redis, a Redis Cluster,
// PostgreSQL and SQLite. After each step, the outcomes, errors and sizes of every storage must be
// those of the memory storage. Every four steps, the waiting tasks of a queue must have the same
// order too, and every fifty steps the whole states must be equal, in the same order.
//
// Before each step, the clocks of all storages are moved on by a multiple of eight seconds, while
// every delay, lease and window ends three or four seconds after the time of a step. A step takes
// much less time, and a sequence in which a step took longer begins again. So no moment is ever
// close to the time of a step, and every outcome is certain.
//
// Versions are compared by their order within a task, and moments with a precision of four
// seconds. If the contract leaves a choice to each storage, the outcome is not compared, or
// the maintenance is done before the step so that no choice is left: see world_test.go.
//
// A failure names its seed. MIDGE_DIFF_SEED=7 runs only that seed, MIDGE_DIFF_STEPS sets another
// length, and MIDGE_DIFF_SHRINK=1 searches for the shortest sequence that still differs. With the
// build tag midge_general, the storages take no fast paths.
package difftest
