// Package faulttest tests the promises of midge when things break. It holds only tests. They run
// runners as processes of their own on a real Redis, a real three-master Cluster, a real
// PostgreSQL and a SQLite file, and kill, freeze and disconnect them. A checker reads the events
// that the processes recorded. The package is a module of its own, because of SQLite's driver.
//
// The test binary is its own worker: started with a configuration in its environment, it opens
// the storage and runs a runner whose jobs take the steps in their payload. Every process appends its
// events to a file of its own, one JSON line per event and one write per line. So a SIGKILL loses
// no event; only a call that had not returned has no event for its end. All times come from the
// host's clock, which the processes and the servers share.
//
// With the build tag long, each test repeats its expensive parts, including the storm, as often
// as is useful. Without the tag it repeats them a tenth as often or less.
//
// The tests need redis-server, PostgreSQL and a Unix system; see internal/testserver.
package faulttest
