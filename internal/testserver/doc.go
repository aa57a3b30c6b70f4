// Package testserver starts private servers for tests, and a proxy that injects
// faults in front of them. The tests and the benchmark import it.
//
// [Redis] starts for a test a real redis-server of its own on a free loopback port,
// with a fresh data directory. [Cluster] starts a Redis Cluster of three masters, and
// [Sentinel] a master, its replica and a sentinel. [Postgres] starts a PostgreSQL
// server, and [Standby] a PostgreSQL server that follows another one.
//
// [Start], [StartCluster] and [StartPostgres] do the same for a TestMain, which has no
// testing.TB. StartCluster can also start a replica of each master. Servers never use a
// standard port, are stopped by their process id, never by name, and die with the test
// process, however it ends.
//
// The servers need redis-server and PostgreSQL to be installed. A test that starts one
// begins with [Require] or [RequirePostgres], which skips the test unless the variable
// [EnvServers] is set. make test sets it and counts a skip as a failure.
//
// [StartClock] makes a clock that jumps under the servers that are started with it.
//
// [NewProxy] puts a TCP proxy in front of an address. The proxy understands RESP, the
// protocol of Redis, and the protocol of PostgreSQL. It loses requests or replies, holds
// them, adds latency, goes silent, or refuses connections.
//
// [Pace] distinguishes a slow program from a busy machine, for tests with a time bound. [ProcessorTime]
// bounds a computation. [Turn] delays a test while the machine is busy with other tests.
//
// Nothing here sleeps for a fixed time: the package polls a condition until a deadline,
// as tests do with [Await].
package testserver
