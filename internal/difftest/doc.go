// Package difftest compares the storages with each other: it holds tests alone. Seeded random
// sequences of calls of the contract run over memory, one Redis, a Redis Cluster,
// PostgreSQL and SQLite, and after each step the outcomes, the errors and the sizes of all of them must be
// those of memory; every fifty steps their whole states too, in their order.
//
// Before each step the clocks of all storages are moved on to a multiple of eight seconds,
// while every delay, lease and window ends four seconds beside one. A step takes much less,
// and a sequence in which one took longer begins again. So no moment is ever close to the
// time of a step, and every outcome is certain.
//
// Versions are compared by their order within a task, moments to four seconds. Where the
// contract leaves a choice to each storage, its outcome is not compared, or the maintenance is
// done before so that there is none: world_test.go says where.
//
// A failure names its seed. MIDGE_DIFF_SEED=7 runs that one alone, MIDGE_DIFF_STEPS sets
// another length, and MIDGE_DIFF_SHRINK=1 looks for the shortest sequence that still differs.
// The build tag midge_general compares storages whose calls go by no short way.
package difftest
