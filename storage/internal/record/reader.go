package record

import (
	"time"

	"github.com/midgehq/midge/internal/packed"
)

// Reader reads packed bytes.
type Reader = packed.Reader

// AppendText appends a text to b, after its length.
func AppendText[T string | []byte](b []byte, text T) []byte { return packed.AppendText(b, text) }

func span(r *Reader) time.Duration { return time.Duration(r.Number()) * time.Microsecond }

func headersOf(r *Reader) map[string]string {
	pairs, headers := Reader{Rest: r.Bytes()}, make(map[string]string)
	for len(pairs.Rest) > 0 && !pairs.Bad {
		name := string(pairs.Bytes())
		headers[name] = string(pairs.Bytes())
	}
	r.Bad = r.Bad || pairs.Bad
	return headers
}
