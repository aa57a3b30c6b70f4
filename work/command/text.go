package command

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/midgehq/midge/internal/contain"
	"github.com/midgehq/midge/internal/runner"
)

// tail keeps the end of the text that is written to it.
type tail struct {
	most int
	kept []byte
	lost bool
}

// Write never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.most; over > t.most { // so that the text is moved seldom
		t.kept, t.lost = append(t.kept[:0], t.kept[over:]...), true
	}
	return len(p), nil
}

const cutOff = "(the beginning is cut off)\n"

// text returns the end of the text, in at most that many bytes. It says if the beginning is missing.
func (t *tail) text(most int) string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(t.kept), "\ufffd"))
	if !t.lost && len(text) <= most {
		return text
	}
	return cutOff + lastOf(text, most-len(cutOff))
}

// lastOf returns the end of a text, from the beginning of a character on, in at most that many bytes.
func lastOf(text string, most int) string {
	from := max(len(text)-max(most, 0), 0)
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	return text[from:]
}

// lastLine returns the last line of a text, in at most that many bytes.
func lastLine(text string, most int) string {
	text = strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
	for len(text) > most {
		_, size := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-size]
	}
	return text
}

// bounded keeps a text up to a length.
type bounded struct {
	most int
	kept []byte
	over bool
}

// Write never fails, so that the program goes on.
func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.most-len(b.kept))
	b.kept = append(b.kept, p[:n]...)
	b.over = b.over || n < len(p)
	return len(p), nil
}

// heedless is a writer whose failures reach neither the program nor the worker. It drops what fails.
type heedless struct {
	to   io.Writer
	name string
	task *runner.Attempt

	logged bool // whether a failure was
}

func (h *heedless) Write(p []byte) (int, error) {
	panicked := func(v any) error { return fmt.Errorf("panic: %v", v) }
	err := contain.Call(func() { _, _ = h.to.Write(p) }, panicked)
	if err != nil && !h.logged {
		h.logged = true
		h.task.OutputLost(h.name, err)
	}
	return len(p), nil
}
