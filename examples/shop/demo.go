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
	"time"
)

// What follows stands for the world around a shop: a bank, a mail server and customers.

//go:embed catalogue.csv
var catalogue string

// bank charges cards: it declines one in ten, and is out of order for one in ten.
func bank(w http.ResponseWriter, _ *http.Request) {
	switch rand.N(10) {
	case 0:
		http.Error(w, "declined", http.StatusPaymentRequired)
	case 1:
		http.Error(w, "out of order", http.StatusServiceUnavailable)
	default:
		_, _ = fmt.Fprint(w, "R-", rand.N(1_000_000))
	}
}

// mailServer gives a function that logs mails, and fails for one in five.
func mailServer(log *slog.Logger) func(ctx context.Context, to, text string) error {
	return func(ctx context.Context, to, text string) error {
		if rand.N(5) == 0 {
			return errors.New("421 the mail server is busy")
		}
		log.InfoContext(ctx, "mail", "to", to, "text", text)
		return nil
	}
}

// customers upload the catalogue, and place an order now and then, until ctx ends.
func customers(ctx context.Context, base string, every time.Duration, log *slog.Logger) {
	post(ctx, base+"/catalogue", catalogue, log)
	tick := time.NewTicker(every)
	defer tick.Stop()
	products := strings.Fields(catalogue)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			product, _, _ := strings.Cut(products[rand.N(len(products))], ",")
			post(ctx, base+"/orders", url.Values{
				"mail": {"ann@mail.example"}, "product": {product},
			}.Encode(), log)
		}
	}
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
