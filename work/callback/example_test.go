package callback_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage/memory"
	"github.com/midgehq/midge/work/callback"
)

// Paid is a job that another program runs, behind an HTTP endpoint.
type Paid struct{ Order int }

// Kind is the name under which the callback is registered.
func (Paid) Kind() string { return "order.paid" }

// Options keep a task for a while after its end.
func (Paid) Options() midge.Options { return midge.Options{Keep: midge.Keep{For: time.Minute}} }

// The tasks of a kind are posted to an endpoint, whose answer is their result. This endpoint is on the same machine,
// without TLS, and has to be allowed therefore.
func ExampleHandle() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Println(r.Header.Get("Midge-Kind"), string(body), len(r.Header.Get("Webhook-Signature")) > 0)
		_, _ = io.WriteString(w, `"shipped"`)
	}))
	defer receiver.Close()

	store, err := memory.Open(memory.Config{})
	must(err)
	runner, err := midge.NewRunner(store, midge.RunnerConfig{})
	must(err)
	must(callback.Handle(runner, "order.paid", callback.Config{
		URL:     receiver.URL + "/hooks/paid",
		Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
		Allow:   []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
	}))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- runner.Run(ctx) }()

	client, err := midge.NewClient(store, midge.ClientConfig{})
	must(err)
	task, err := client.Enqueue(ctx, Paid{Order: 7})
	must(err)
	var result string
	must(client.Await(ctx, task.Ref, &result))
	fmt.Println(result)
	stop()
	must(<-ended)
	// Output:
	// order.paid {"Order":7} true
	// shipped
}

// Several kinds have endpoints of one host, which gets at most four requests at once.
func ExampleHandleAll() {
	store, err := memory.Open(memory.Config{})
	must(err)
	runner, err := midge.NewRunner(store, midge.RunnerConfig{Queues: []string{"orders"}})
	must(err)
	shop := callback.Config{Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, PerHost: 4}
	paid, sent := shop, shop
	paid.URL, sent.URL = "https://shop.example.org/paid", "https://shop.example.org/sent"
	must(callback.HandleAll(runner, map[string]callback.Config{"order.paid": paid, "order.sent": sent}))
	// Output:
}

// A configuration is checked before anything is opened. The error shows no secret.
func ExampleConfig_Check() {
	fmt.Println(callback.Config{URL: "https://10.0.0.7/hooks", Unsigned: true}.Check())
	fmt.Println(callback.Config{URL: "https://shop.example.org/", Secrets: []string{"secret"}}.Check())
	// Output:
	// invalid URL "with 10.0.0.7, a private address, which is not allowed": want another address, or its network among the allowed networks
	// invalid secret "***": want "whsec_" and the base64 of 24 to 64 bytes
}

func must(err error) {
	if err != nil {
		log.Panic(err)
	}
}
