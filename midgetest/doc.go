// Package midgetest tests programs that use midge: what they enqueue, their jobs, and whether a
// deploy can read the tasks that wait.
//
//	// The enqueued tasks, with a client of any storage, within an open transaction too:
//	midgetest.RequireJob(t, client, Receipt{Order: 7})
//
//	// One attempt of a job, by the code of the runner, in this goroutine:
//	k := midgetest.New(t, midgetest.Config{Register: register})
//	worked := k.Work(Import{File: "a.csv"})
//
//	// A week of retries and schedules in milliseconds:
//	all := k.Until(7 * 24 * time.Hour)
//
// Each failure stops the test at once, by its Fatalf, and lists the tasks that were there instead.
// docs/testing.md of the repository explains a test step by step.
package midgetest
