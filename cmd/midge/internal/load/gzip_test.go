package load

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestADamagedFileOfGzip loads the rows before the damage, and reports the damage. Once the file is whole,
// the load goes on.
func TestADamagedFileOfGzip(t *testing.T) {
	text := strings.Repeat("1234567\n", 1000)
	whole := zipped(text)
	at := func(i int) []byte { // with another byte there
		bad := slices.Clone(whole)
		bad[(i+len(bad))%len(bad)] ^= 0x55
		return bad
	}
	for name, c := range map[string]struct {
		data []byte
		is   string
	}{
		"cut in its checksum":     {whole[:len(whole)-5], "ends in the middle"},
		"cut in its text":         {whole[:len(whole)-9], "ends in the middle"},
		"cut in its header":       {whole[:7], "ends in the middle"},
		"a second member, cut":    {slices.Concat(whole, whole[:8]), "ends in the middle"},
		"another checksum":        {at(-8), "checksum of its gzip data is wrong"},
		"another length":          {at(-1), "checksum of its gzip data is wrong"},
		"text behind it":          {slices.Concat(whole, []byte("garbage garbage")), "something else than gzip data"},
		"a little text behind it": {slices.Concat(whole, []byte("x")), "ends in the middle"},
		"zeros behind it":         {slices.Concat(whole, make([]byte, 512)), "something else than gzip data"},
		"another method":          {at(2), "something else than gzip data"},
		"damaged data":            {slices.Concat(whole[:10], []byte{0xff, 0xff}, whole[12:]), "its gzip data is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			l := r.loader(r.write("a.txt", string(c.data)))
			report, err := l.Run(t.Context())
			var damaged *DamagedError
			if !errors.As(err, &damaged) || !strings.Contains(damaged.Is, c.is) || !strings.Contains(err.Error(), l.Source.Name) {
				t.Fatalf("got %v, want that it %q", err, c.is)
			}
			if report.Finished || int64(len(r.rows())) != report.Rows {
				t.Errorf("got %+v and %d rows, want that the load is not finished", report, len(r.rows()))
			}
			report = r.ok(r.loader(r.write("a.txt", string(whole))))
			if report.Rows != 1000 || len(r.rows()) != 1000 {
				t.Errorf("the whole file: got %+v and %d rows, want 1000", report, len(r.rows()))
			}
		})
	}
}
