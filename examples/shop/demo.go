package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/midgehq/midge"
)

// The rest of this file stands for the world around a shop: a bank, a mail server and customers.

//go:embed catalogue.csv
var catalogue string

// bank is an HTTP handler that charges cards. It declines one card in ten, and fails for one in
// ten.
func bank(w http.ResponseWriter, r *http.Request) {
	takes(r.Context(), 2*time.Second)
	switch rand.N(10) {
	case 0:
		http.Error(w, "declined", http.StatusPaymentRequired)
	case 1:
		http.Error(w, "out of order", http.StatusServiceUnavailable)
	default:
		_, _ = fmt.Fprint(w, "R-", rand.N(1_000_000))
	}
}

// takes waits for a random part of d, or until ctx ends.
func takes(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(rand.N(d)):
	case <-ctx.Done():
	}
}

// typo is the domain of customers who mistype their address.
const typo = "@mial.example"

// mailServer returns a function that logs mails. It fails for one mail in five, and for each
// mistyped address.
func mailServer(log *slog.Logger) func(ctx context.Context, to, text string) error {
	return func(ctx context.Context, to, text string) error {
		takes(ctx, 500*time.Millisecond)
		if rand.N(5) == 0 {
			return errors.New("421 the mail server is busy")
		}
		if strings.HasSuffix(to, typo) {
			return midge.Discard(errors.New("550 no such mailbox")) // a retry would not help
		}
		log.InfoContext(ctx, "mail", "to", to, "text", text)
		return nil
	}
}

// crowd is how many customers may wait for their orders at once.
const crowd = 20

// customers uploads the catalogue and places an order at each interval, and sometimes many orders
// at once, until ctx ends.
func customers(ctx context.Context, base string, every time.Duration, log *slog.Logger) {
	post(ctx, base+"/catalogue", catalogue, log)
	tick := time.NewTicker(every)
	defer tick.Stop()
	var ordering sync.WaitGroup
	defer ordering.Wait()
	room := make(chan struct{}, crowd)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		some := 1
		if rand.N(20) == 0 {
			some = crowd
		}
		for range min(some, crowd-len(room)) {
			room <- struct{}{}
			ordering.Go(func() {
				defer func() { <-room }()
				post(ctx, base+"/orders", anOrder(), log)
			})
		}
	}
}

// anOrder returns the form that a customer sends.
func anOrder() string {
	names := []string{"ann", "bo", "cleo", "dan", "eve"}
	domain := "@mail.example"
	if rand.N(20) == 0 {
		domain = typo
	}
	products := strings.Fields(catalogue)
	product, _, _ := strings.Cut(products[rand.N(len(products))], ",")
	return url.Values{"mail": {names[rand.N(len(names))] + domain}, "product": {product}}.Encode()
}

func post(ctx context.Context, to, body string, log *slog.Logger) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(body))
	if err == nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		var res *http.Response
		if res, err = http.DefaultClient.Do(req); err == nil {
			err = res.Body.Close()
			log.InfoContext(ctx, "customer", "to", req.URL.Path, "status", res.StatusCode)
		}
	}
	if err != nil && ctx.Err() == nil {
		log.ErrorContext(ctx, "customer", "error", err)
	}
}
