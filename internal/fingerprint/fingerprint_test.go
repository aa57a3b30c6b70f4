package fingerprint

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/midgehq/midge/storage"
)

func TestErrorsOfOneCauseHaveOneFingerprint(t *testing.T) {
	for want, all := range map[string][]string{
		`dial tcp #: connect: connection refused`: {
			"dial tcp 10.0.3.17:5432: connect: connection refused", "dial tcp [fe80::1%eth0]:5432: connect: connection refused",
			"dial tcp [::1]:80: connect:  connection refused\nmore",
		},
		`user # not found`: {
			"user 42 not found", "user 7f3c1d9e-1111-2222-3333-444455556666 not found", "user -3 not found",
			"user 06h0ig2991ss4c00s9rosi874s not found", "user ann@example.org not found", "user deadbeef01 not found",
			"user 0xc000123abc not found", "  user 3.5 not found ",
		},
		`no file "…"`:                     {`no file "a b.png"`, `no file "c\"d"`, `no file ""`},
		"no column `…` in '…'":            {"no column `a` in 'b'", "no column `id` in 'table 7'"},
		`I can't and don't`:               {"I can't and don't"},
		`expired at #`:                    {"expired at 2026-11-23T10:00:00Z", "expired at 2026-11-23 10:00:00.123+01:00", "expired at 1700000000", "expired at 2026-11-23"},
		`took #ms of #`:                   {"took 12ms of 100", "took 1.5ms of 1,000"},
		`panic: index # of # [recovered]`: {"panic: index 5 of 3 [recovered]", "panic: index 77 of 9 [recovered]"},
		`charge: status #`:                {"charge: status 7", "charge: status 1234", "charge: status 12"},
		`sent # bytes, want #`:            {"sent 503 bytes, want 512", "sent 1 bytes, want 404"},
		`took: # ms`:                      {"took: 431 ms", "took: 2 ms"},
		`user # is gone`:                  {"user 404 is gone", "user 7 is gone"},
		`no "…": #`:                       {`no "status 503": 500`, `no "HTTP 402": 1`},
		``:                                {"", "\n", "   "},
	} {
		for _, text := range all {
			if got := Text(text); got != want {
				t.Errorf("%q: got %q, want %q", text, got, want)
			}
			if a, b := OfText(text), OfText(all[0]); a != b || (a.ID == "") != (want == "") {
				t.Errorf("%q: got %+v, want %+v", text, a, b)
			}
		}
	}
	if a, b := OfText("timed out"), OfText("refused"); a.ID == b.ID {
		t.Errorf("two causes are %s", a.ID)
	}
}

// TestAStatusTellsCausesApart checks that errors which differ in the status of a server or a program have
// different causes, and that all else in them may vary.
func TestAStatusTellsCausesApart(t *testing.T) {
	seen := make(map[string]string)
	for want, text := range map[string]string{
		"charge #: status 503":                "charge 4711: status 503",
		"charge #: status 402":                "charge 4712: status 402",
		"charge #: status code: 402":          "charge 1: status code: 402",
		"webhook: HTTP 503 after #s":          "webhook: HTTP 503 after 12s",
		"webhook: HTTP/1.1 404 Not Found":     "webhook: HTTP/1.1 404 Not Found",
		"rpc error: code=500":                 "rpc error: code=500",
		"550 no such mailbox":                 "550 no such mailbox",
		"send to #: 550 no such mailbox":      "send to ann@example.org: 550 no such mailbox",
		"send: 550 5.1.1 user # unknown":      "send: 550 5.1.1 user 17 unknown",
		"send: 421 Service not available (#)": "send: 421 Service not available (3)",
		"ffmpeg: exit status 137":             "ffmpeg: exit status 137",
		"ffmpeg: exit status 1":               "ffmpeg: exit status 1",
	} {
		got := OfText(text)
		if got.Text != want {
			t.Errorf("%q: got %q, want %q", text, got.Text, want)
		}
		if other := seen[got.ID]; other != "" {
			t.Errorf("%q and %q have one cause", text, other)
		}
		seen[got.ID] = text
	}
}

func TestATaskWithoutAnErrorHasItsReason(t *testing.T) {
	dead := storage.Task{State: storage.Dead, Reason: storage.ReasonCrashes, Attempts: []storage.Attempt{{Outcome: storage.AttemptCrashed}}}
	if got := Of(dead).Text; got != storage.ReasonCrashes {
		t.Errorf("got %q, want the reason", got)
	}
	dead.Attempts[0].Error = "no memory at 0x17"
	if got := Of(dead).Text; got != "no memory at #" {
		t.Errorf("got %q, want the error", got)
	}
	if got := Of(storage.Task{}); got != (Print{}) {
		t.Errorf("got %+v of nothing", got)
	}
}

func FuzzText(f *testing.F) {
	f.Add(`dial tcp 10.0.3.17:5432: "a\"b" 'c'`)
	f.Add(strings.Repeat("é1", 900))
	f.Fuzz(func(t *testing.T, text string) {
		got := Text(text)
		if len(got) > maxText || utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Fatalf("%q: got %q", text, got)
		}
		if Text(text) != got {
			t.Fatalf("%q has two fingerprints", text)
		}
	})
}
