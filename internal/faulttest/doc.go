// Package faulttest holds tests of what midge promises when things break, and no
// code: runners as processes of their own are killed, frozen and cut off on a real
// Redis, a real three-master Cluster, a real PostgreSQL and a file of SQLite, and a checker reads
// what they recorded. It is a module of its own, for SQLite's driver.
//
// The test binary is its own worker: started again with a configuration in its
// environment it opens the storage and runs a runner whose jobs do what their
// payload says. Every process appends what happens to a file of its own, one JSON
// line per event, each line one write, so that nothing but an unfinished call is
// missing after a SIGKILL. Times are those of the host's clock, which all processes
// and the servers share.
//
// With the build tag long what is expensive is done as often as it is worth, else a tenth
// of that or less: the storm, in which everything happens at once, too.
//
// The tests need redis-server, PostgreSQL and a Unix system; see internal/testserver.
package faulttest
