package testserver

import (
	"strings"
	"testing"
)

func TestFrameMeasuresOneValue(t *testing.T) {
	whole := []string{
		"+OK\r\n", "-ERR no\r\n", ":42\r\n", "_\r\n", "#t\r\n", ",1.5\r\n", "(99\r\n",
		"$5\r\nhello\r\n", "$0\r\n\r\n", "$-1\r\n", "$4\r\n\r\n*1\r\n", "=7\r\ntxt:abc\r\n", "!3\r\nERR\r\n",
		"*0\r\n", "*-1\r\n", "*2\r\n:1\r\n*1\r\n$1\r\nx\r\n", "%1\r\n+a\r\n:1\r\n", "~1\r\n:1\r\n",
		">2\r\n+message\r\n+x\r\n", "|1\r\n+ttl\r\n:1\r\n+OK\r\n",
	}
	for _, value := range whole {
		if size, ok := frame([]byte(value + "+more\r\n")); size != len(value) || !ok {
			t.Errorf("frame(%q) = %d, %t, want %d, true", value, size, ok, len(value))
		}
		for cut := range len(value) {
			if size, ok := frame([]byte(value[:cut])); size != 0 || !ok {
				t.Errorf("frame(%q) = %d, %t, want 0, true: it is incomplete", value[:cut], size, ok)
			}
		}
	}
	for _, value := range []string{"GET / HTTP/1.1\r\n", "*x\r\n", "$-2\r\n", "$99999999999\r\n"} {
		if size, ok := frame([]byte(value)); ok {
			t.Errorf("frame(%q) = %d, true, want false: it is not RESP", value, size)
		}
	}
}

func FuzzFrameStaysInside(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"))
	f.Add([]byte("|1\r\n+a\r\n:1\r\n%1\r\n_\r\n_\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		size, ok := frame(b)
		if size < 0 || size > len(b) || size > 0 && !ok {
			t.Fatalf("frame(%q) = %d, %t", b, size, ok)
		}
		if again, _ := frame(b[:size]); size > 0 && again != size {
			t.Fatalf("frame(%q) = %d, want %d again", b[:size], again, size)
		}
	})
}

func TestCommandNamesARequest(t *testing.T) {
	for in, want := range map[string]string{
		string(request("evalsha", "x")): "EVALSHA",
		"ping\r\n":                      "PING",
		"set a b\r\n":                   "SET",
		"*0\r\n":                        "",
		"":                              "",
	} {
		if got := command([]byte(in)); got != want {
			t.Errorf("command(%q) = %q, want %q", in, got, want)
		}
	}
	if match := Command("GET", "EvalSha"); !match(request("EVALSHA", "x")) || match(request("SET")) {
		t.Error("Command does not match by name")
	}
	if match := Containing("{mail}"); !match(request("GET", "midge:{mail}:x")) || match(request("GET", "x")) {
		t.Error("Containing does not match by text")
	}
}

func TestReplyText(t *testing.T) {
	got, err := replyText([]byte("*4\r\n:1\r\n$2\r\nab\r\n$-1\r\n+c\r\n"))
	if want := "1\nab\n\nc"; got != want || err != nil {
		t.Errorf("replyText = %q, %v, want %q", got, err, want)
	}
	if _, err := replyText([]byte("-ERR no\r\n")); err == nil || !strings.Contains(err.Error(), "ERR no") {
		t.Errorf("replyText of an error reply = %v, want that error", err)
	}
}
