package midgetest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/midgetest"
)

// Import is a job that continues from its checkpoint.
type Import struct{ File string }

// importer holds the dependencies of the job.
type importer struct{ down bool }

func (i *importer) run(ctx context.Context, _ Import) error {
	row := 0
	if _, err := midge.LoadCheckpoint(ctx, &row); err != nil {
		return err
	}
	row += 50
	err := errors.Join(midge.Checkpoint(ctx, row), midge.Progress(ctx, fmt.Sprintf("%d %%", row)))
	if err != nil {
		return err
	}
	if i.down {
		return errors.New("the database is down")
	}
	if err := midge.FollowUp(ctx, Receipt{Order: row}); err != nil {
		return err
	}
	return midge.SetResult(ctx, row)
}

// register is the function that the program calls in its main.
func (i *importer) register(r *midge.Runner) error {
	return errors.Join(midge.Handle(r, i.run), midge.Register[Receipt](r), r.Periodic(midge.Cron("0 3 * * *"), Receipt{Order: 1}))
}

func newExampleKit(i *importer) *midgetest.Kit {
	return midgetest.New(t, midgetest.Config{
		Register: i.register, Start: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
	})
}

func ExampleNew() {
	i := new(importer)
	k := midgetest.New(t, midgetest.Config{Register: i.register})
	fmt.Println(k.Work(Import{File: "a.csv"}).Outcome)
	// Output: succeeded
}

func ExampleKit_Work() {
	k := newExampleKit(&importer{down: true})
	worked := k.Work(Import{File: "a.csv"}, midge.Retries(5))
	fmt.Println(worked.Outcome, worked.Err, worked.RetryIn)
	// Output: failed the database is down 2s
}

func ExampleKit_WorkTask() {
	i := &importer{down: true}
	k := newExampleKit(i)
	failed := k.Work(Import{File: "a.csv"})
	i.down = false
	done := k.WorkTask(failed.Task.Ref)
	fmt.Println(failed.Outcome, done.Outcome, len(done.FollowUps))
	// Output: failed succeeded 1
}

func ExampleKit_Drain() {
	k := newExampleKit(new(importer))
	if _, err := k.Client().Enqueue(t.Context(), Import{File: "a.csv"}); err != nil {
		t.Fatalf("%v", err)
	}
	for _, worked := range k.Drain() {
		fmt.Println(worked.Task.Kind, worked.Outcome)
	}
	// Output:
	// import succeeded
	// receipt succeeded
}

func ExampleKit_Until() {
	k := newExampleKit(new(importer))
	nights := k.Until(7 * 24 * time.Hour)
	fmt.Println(len(nights), "reports in a week; it is", k.Now().Format(time.DateOnly))
	// Output: 7 reports in a week; it is 2026-03-08
}

func ExampleKit_Client() {
	k := newExampleKit(new(importer))
	if err := placeOrder(t.Context(), k.Client(), 7); err != nil {
		t.Fatalf("%v", err)
	}
	midgetest.RequireEnqueued[Receipt](t, k.Client(), midgetest.Params(Receipt{Order: 7}))
	fmt.Println("one receipt")
	// Output: one receipt
}

func ExampleKit_Now() {
	k := newExampleKit(new(importer))
	k.Until(time.Hour)
	fmt.Println(k.Now())
	// Output: 2026-03-01 01:00:00 +0000 UTC
}

func ExampleKit_Inline() {
	k := newExampleKit(new(importer))
	task, err := k.Inline().Enqueue(t.Context(), Import{File: "a.csv"}, midge.KeepFor(time.Hour))
	if err != nil {
		t.Fatalf("%v", err)
	}
	var rows int
	if err := k.Client().Await(t.Context(), task.Ref, &rows); err != nil { // it has run
		t.Fatalf("%v", err)
	}
	fmt.Println(rows)
	// Output: 50
}

func ExampleWorked_Result() {
	var rows int
	newExampleKit(new(importer)).Work(Import{File: "a.csv"}).Result(&rows)
	fmt.Println(rows)
	// Output: 50
}

func ExampleWorked_Progress() {
	var progress string
	newExampleKit(&importer{down: true}).Work(Import{File: "a.csv"}).Progress(&progress)
	fmt.Println(progress)
	// Output: 50 %
}

func ExampleWorked_Checkpoint() {
	var row int
	newExampleKit(&importer{down: true}).Work(Import{File: "a.csv"}).Checkpoint(&row)
	fmt.Println(row)
	// Output: 50
}

func ExampleGolden() {
	i := new(importer)
	midgetest.Golden(t, "testdata/jobs.json", i.register)
	fmt.Println("this deploy reads what waits")
	// Output: this deploy reads what waits
}
