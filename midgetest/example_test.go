package midgetest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/midgetest"
	"github.com/midgehq/midge/storage/memory"
)

// t stands for the *testing.T of a test.
var t = new(exampleT)

type exampleT struct{ testing.TB }

func (*exampleT) Helper()                           {}
func (*exampleT) Context() context.Context          { return context.Background() }
func (*exampleT) Name() string                      { return "Example" }
func (*exampleT) Cleanup(func())                    {}
func (*exampleT) Logf(string, ...any)               {}
func (*exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Receipt is a job.
type Receipt struct{ Order int }

func (Receipt) Run(context.Context) error { return nil }

// placeOrder is the code under test: it enqueues a job.
func placeOrder(ctx context.Context, client *midge.Client, order int) error {
	_, err := client.EnqueueIn(ctx, time.Minute, Receipt{Order: order}, midge.To("mail"))
	return err
}

func newExampleClient() *midge.Client {
	store, err := memory.Open(memory.Config{})
	if err != nil {
		panic(err)
	}
	client, err := midge.NewClient(store, midge.ClientConfig{})
	if err != nil {
		panic(err)
	}
	return client
}

func ExampleRequireEnqueued() {
	client := newExampleClient()
	if err := placeOrder(t.Context(), client, 7); err != nil {
		t.Fatalf("%v", err)
	}
	receipt := midgetest.RequireEnqueued[Receipt](t, client, midgetest.With(midge.To("mail")))
	fmt.Println(receipt.Job.Order, receipt.State)
	// Output: 7 scheduled
}

func ExampleRequireJob() {
	client := newExampleClient()
	if err := placeOrder(t.Context(), client, 7); err != nil {
		t.Fatalf("%v", err)
	}
	receipt := midgetest.RequireJob(t, client, Receipt{Order: 7}, midgetest.With(midge.To("mail")))
	fmt.Println(receipt.State)
	// Output: scheduled
}

func ExampleRequireNone() {
	client := newExampleClient()
	if err := placeOrder(t.Context(), client, 7); err != nil {
		t.Fatalf("%v", err)
	}
	midgetest.RequireNone[Receipt](t, client, midgetest.Params(Receipt{Order: 8}))
	fmt.Println("no receipt of order 8")
	// Output: no receipt of order 8
}

func ExampleAll() {
	client := newExampleClient()
	for order := range 3 {
		if err := placeOrder(t.Context(), client, order); err != nil {
			t.Fatalf("%v", err)
		}
	}
	for _, receipt := range midgetest.All[Receipt](t, client) {
		fmt.Println(receipt.Job.Order, receipt.Queue)
	}
	// Output:
	// 0 mail
	// 1 mail
	// 2 mail
}

func ExampleParams() {
	client := newExampleClient()
	if err := placeOrder(t.Context(), client, 7); err != nil {
		t.Fatalf("%v", err)
	}
	fmt.Println(midgetest.RequireEnqueued[Receipt](t, client, midgetest.Params(Receipt{Order: 7})).Job)
	// Output: {7}
}

func ExampleWhere() {
	client := newExampleClient()
	if err := placeOrder(t.Context(), client, 7); err != nil {
		t.Fatalf("%v", err)
	}
	large := midgetest.Where(func(r Receipt) bool { return r.Order > 5 })
	fmt.Println(midgetest.RequireEnqueued[Receipt](t, client, large).Job)
	// Output: {7}
}

func ExampleWith() {
	client := newExampleClient()
	if err := placeOrder(t.Context(), client, 7); err != nil {
		t.Fatalf("%v", err)
	}
	later := midgetest.With(midge.To("mail"), midge.In(time.Minute))
	fmt.Println(midgetest.RequireEnqueued[Receipt](t, client, later).Job)
	// Output: {7}
}

func ExampleTimes() {
	client := newExampleClient()
	for order := range 2 {
		if err := placeOrder(t.Context(), client, order); err != nil {
			t.Fatalf("%v", err)
		}
	}
	midgetest.RequireEnqueued[Receipt](t, client, midgetest.Times(2))
	fmt.Println("two receipts")
	// Output: two receipts
}
