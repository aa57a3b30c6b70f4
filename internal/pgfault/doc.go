// Package pgfault provokes what can go wrong between midge and PostgreSQL while both of
// them live: deadlocks, transactions that hold vacuum back, bloat, lost notifications,
// pooled and exhausted connections, maintenance that comes between. What comes of
// processes that die is in faulttest.
//
// make test does a tenth of each; make test-long, with the build tag long, does the whole
// and prints the figures.
package pgfault
