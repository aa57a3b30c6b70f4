package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/midgehq/midge/internal/testserver"
)

// TestMain also runs the shop, if a test has started this program as one.
func TestMain(m *testing.M) {
	if url := os.Getenv(envShop); url != "" {
		if err := shopMain(context.Background(), url, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestTheBooksAgreeHoweverOftenTheShopIsKilled(t *testing.T) {
	testserver.RequirePostgres(t)
	server := testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true})
	var out bytes.Buffer
	if err := run(t.Context(), server.URL(), 8, &out); err != nil {
		t.Fatal(err, "\n", out.String())
	}
	t.Log("\n" + out.String())
	if got := strings.Count(out.String(), "kill -9"); got != 7 {
		t.Errorf("the shop was killed %d times, want 7 in\n%s", got, out.String())
	}
	for _, most := range []string{`(\d+) orders were confirmed`, `, (\d+) declined`, `each of the (\d+) orders has one mail`} {
		found := regexp.MustCompile(most).FindStringSubmatch(out.String())
		if found == nil {
			t.Errorf("got no line like %s in\n%s", most, out.String())
			continue
		}
		if n, err := strconv.Atoi(found[1]); err != nil || n == 0 {
			t.Errorf("got %q, want some in\n%s", found[0], out.String())
		}
	}
}

func TestBooksThatDoNotAgree(t *testing.T) {
	for want, c := range map[string]struct {
		books

		confirmed, declined []string
	}{
		"":                               {books{[]string{"a", "b"}, []string{"a", "b"}}, []string{"a"}, []string{"c"}},
		"a mail was sent again: a":       {books: books{[]string{"a"}, []string{"a", "a"}}},
		"a mail without an order: b":     {books: books{[]string{"a"}, []string{"a", "b"}}},
		"an order without a mail: b":     {books: books{[]string{"a", "b"}, []string{"a"}}},
		"a confirmed order is lost: c":   {books: books{[]string{"a"}, []string{"a"}}, confirmed: []string{"a", "c"}},
		"a declined order came about: a": {books: books{[]string{"a"}, []string{"a"}}, declined: []string{"a"}},
	} {
		got := ""
		if err := c.agree(c.confirmed, c.declined); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%+v: got %q, want %q", c.books, got, want)
		}
	}
}
