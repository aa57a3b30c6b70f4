// Package midgetest tests programs that use midge: what they enqueue, their jobs, and whether a
// deploy can read the tasks that wait.
//
//	midgetest.RequireEnqueued[Receipt](t, client, midgetest.Params(Receipt{Order: 7}))
//
// [RequireEnqueued], [RequireNone] and [All] look at a client of any storage. A failure is of the
// test that was given, at once, by its Fatalf, and lists what was enqueued instead.
package midgetest
