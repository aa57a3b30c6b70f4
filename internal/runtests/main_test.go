package main

import (
	"context"
	"strings"
	"testing"
)

const events = `
{"Action":"build-output","ImportPath":"m/bad","Output":"bad.go:1: no\n"}
{"Action":"start","Package":"m/a"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"quiet\n"}
{"Action":"pass","Package":"m/a","Test":"TestGood"}
{"Action":"output","Package":"m/a","Test":"TestSkip","Output":"--- SKIP: TestSkip\n"}
{"Action":"skip","Package":"m/a","Test":"TestSkip"}
{"Action":"output","Package":"m/a","Test":"TestBad","Output":"got 1, want 2\n"}
{"Action":"fail","Package":"m/a","Test":"TestBad"}
{"Action":"output","Package":"m/a","Output":"PASS\n"}
{"Action":"output","Package":"m/a","Output":"ok  \tm/a\t0.1s\n"}
{"Action":"pass","Package":"m/a"}
{"Action":"output","Package":"m/b","Output":"?   \tm/b\t[no test files]\n"}
{"Action":"skip","Package":"m/b"}
{"Action":"output","Package":"m/c","Test":"TestHung","Output":"panic: test timed out\n"}
`

func TestReportCountsSkippedTests(t *testing.T) {
	var out strings.Builder
	skipped, err := report(&out, strings.NewReader(strings.TrimSpace(events)))
	if skipped != 1 || err != nil {
		t.Errorf("report = %d, %v, want one skipped test", skipped, err)
	}
	want := "bad.go:1: no\n--- SKIP: TestSkip\ngot 1, want 2\nok  \tm/a\t0.1s\n?   \tm/b\t[no test files]\n" +
		"panic: test timed out\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	if _, err := report(&out, strings.NewReader("FAIL")); err == nil {
		t.Error("report of what is not JSON = nil, want an error")
	}
}

func TestRunFailsWhereGoTestDoes(t *testing.T) {
	if err := run(context.Background(), t.Output(), []string{"./no/such/package"}); err == nil {
		t.Error("run of a package that is not there = nil, want an error")
	}
}
