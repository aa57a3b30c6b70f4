// Package pgfault provokes failures between midge and PostgreSQL while the processes of
// both live: deadlocks, transactions that hold vacuum back, bloat, lost notifications,
// pooled and exhausted connections, and calls that come between the parts of maintenance.
// The tests with processes that die are in faulttest.
//
// make test does a tenth of each test. make test-long, with the build tag long, does all
// of it and prints the figures.
package pgfault
