package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// customers is the number of customers who order at the same time.
const customers = 8

// story is the story of the shop, and the answers that its customers got.
type story struct {
	url string
	db  *pgxpool.Pool
	out io.Writer

	mu        sync.Mutex // guards what follows
	confirmed []string   // numbers of confirmed orders
	declined  []string
	unknown   int // orders without an answer
}

// shortDay lets customers order until the shop is killed in the middle of their orders.
func (s *story) shortDay(ctx context.Context, day int) error {
	open, err := launch(s.url)
	if err != nil {
		return err
	}
	var answers atomic.Int64
	last, enough := 50+rand.N[int64](200), make(chan struct{})
	var shopping sync.WaitGroup
	for customer := range customers {
		shopping.Go(func() {
			s.shop(ctx, open.base, fmt.Sprintf("%d-%d", day, customer), func() {
				if answers.Add(1) == last {
					close(enough)
				}
			})
		})
	}
	over := make(chan struct{}) // closed when no customer orders any more
	go func() { shopping.Wait(); close(over) }()
	select {
	case <-enough:
	case <-over:
	}
	err = open.kill()
	<-over
	if err != nil {
		return fmt.Errorf("kill the shop: %w", err)
	}
	return s.tell(ctx, fmt.Sprintf("day %d: kill -9", day))
}

// shop orders until it gets no answer. Then the shop is dead, and only its books show
// whether the last order exists. It calls answered for each answer.
func (s *story) shop(ctx context.Context, base, customer string, answered func()) {
	client := &http.Client{Timeout: 20 * time.Second}
	defer client.CloseIdleConnections()
	for i := 0; ctx.Err() == nil; i++ {
		number := fmt.Sprintf("%s-%d", customer, i)
		form := url.Values{"number": {number}}
		if i%10 == 5 {
			form.Set("declined", "1")
		}
		status, err := post(ctx, client, base+"/orders", form)
		s.mu.Lock()
		switch {
		case err != nil || status == http.StatusInternalServerError:
			s.unknown++
		case status == http.StatusCreated:
			s.confirmed = append(s.confirmed, number)
		case status == http.StatusPaymentRequired:
			s.declined = append(s.declined, number)
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
		answered()
	}
}

func post(ctx context.Context, client *http.Client, to string, form url.Values) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close() // it was read
	return answer.StatusCode, err
}

// patience is how long the last receipts may take: the leases of the killed shops, and the
// receipts of days on which a slow machine sent none.
const patience = 5 * time.Minute

// lastDay opens the shop without customers until every order has its mail.
func (s *story) lastDay(ctx context.Context, day int) error {
	open, err := launch(s.url)
	if err != nil {
		return err
	}
	late, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	every := time.NewTicker(50 * time.Millisecond)
	defer every.Stop()
	for late.Err() == nil {
		b, err := read(late, s.db)
		if err == nil && len(b.mails) >= len(b.orders) {
			break
		}
		select {
		case <-every.C:
		case <-late.Done():
		}
	}
	if err := open.close(); err != nil {
		return fmt.Errorf("close the shop: %w", err)
	}
	return s.tell(ctx, fmt.Sprintf("day %d: closed in order", day))
}

// tell prints how a day ended.
func (s *story) tell(ctx context.Context, how string) error {
	b, err := read(ctx, s.db)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "%s  %s; %d orders, %d mails\n", time.Now().Format("15:04:05.000"), how,
		len(b.orders), len(b.mails))
	return err
}

// compare compares the books with each other and with the answers that customers got.
func (s *story) compare(ctx context.Context) error {
	b, err := read(ctx, s.db)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err = fmt.Fprintf(s.out, "%d orders were confirmed, %d declined, %d had no answer when the shop died\n",
		len(s.confirmed), len(s.declined), s.unknown)
	if err != nil {
		return err
	}
	if err := b.agree(s.confirmed, s.declined); err != nil {
		return fmt.Errorf("the books do not agree: %w", err)
	}
	_, err = fmt.Fprintf(s.out, "each of the %d orders has one mail, and each mail its order\n", len(b.orders))
	return err
}
