package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/midgehq/midge/examples/internal/store"
)

func TestRatelimit(t *testing.T) {
	opened, err := store.Open(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	var out bytes.Buffer
	if err := run(t.Context(), opened, &out); err != nil {
		t.Fatal(err, "\n", out.String())
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("took %v, want a few seconds", took)
	}
	for _, want := range []string{
		`big +pages \[1\]: 429 Too Many Requests`,
		`big +pages \[1\]: 200 OK`,
		`big +pages \[2 3 4\]: 200 OK`,
		`mid +pages \[4\]: 200 OK`,
		`small +pages \[1\]: 200 OK`,
		`all 9 jobs are done`,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("got no line like %s in\n%s", want, out.String())
		}
	}
	small, big := strings.Index(out.String(), "small"), strings.Index(out.String(), "[6 7]: 200")
	if small < 0 || big < small {
		t.Errorf("small waited for big in\n%s", out.String())
	}
	if err := opened.Close(); err != nil {
		t.Error(err)
	}
}
