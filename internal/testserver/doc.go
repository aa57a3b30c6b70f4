// Package testserver starts private servers for tests, and a proxy that injects
// faults in front of them. Tests import it, and the benchmark.
//
// [Redis] gives a test a real redis-server of its own on a free loopback port,
// with a fresh data directory; [Cluster] gives it a Redis Cluster of three
// masters (and [StartCluster] their replicas, where asked for), and [Sentinel] a master, its replica and a sentinel. [Start] and
// [StartCluster] do the same for a TestMain, which has no testing.TB. Servers are
// stopped by their process id, never by name, never use a standard port, and die
// with the test process however that ends.
//
// The servers need redis-server to be installed. A test that wants one begins
// with [Require], which skips the test unless the variable [EnvServers] is set;
// make test sets it and counts a skip as a failure.
//
// [Postgres] gives a test a PostgreSQL of its own, [Standby] one that follows it.
//
// [StartClock] makes a clock that jumps under the servers that are started with it.
//
// [NewProxy] puts a TCP proxy that understands RESP, the protocol of Redis, and that of
// PostgreSQL in front of an address: it loses requests or replies, holds them, adds
// latency, goes silent, or refuses connections.
//
// [Pace] tells a slow program from a busy machine, for tests with a bound in time.
//
// Nothing here sleeps for a fixed time: it polls a condition until a deadline, as
// tests do with [Await].
package testserver
