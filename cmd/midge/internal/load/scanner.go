package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// mostRow bounds the text of a row. A row has to be in memory while it is read.
const mostRow = 64 << 20

// errLongRow is the error for a row whose text is longer than mostRow. The rows after it cannot be found,
// because a quote that is never closed may be the reason.
var errLongRow = fmt.Errorf("the row is longer than %d MiB; is a quote never closed?", mostRow>>20)

// errCutRow is the error for the last row of a pipe if no newline stands behind it.
var errCutRow = errors.New("the text ends within the row: want a newline behind the last row; " +
	"did the program that wrote it die?")

// scanner splits a text into rows. A row of CSV goes on behind the end of a line that is within quotes.
type scanner struct {
	in     *bufio.Reader
	pipe   bool    // the last row has to end with a newline
	quotes *quotes // nil if each line is a row
	text   []byte
}

func newScanner(in io.Reader, format Format, pipe bool) *scanner {
	s := &scanner{in: bufio.NewReaderSize(in, 256<<10), pipe: pipe}
	if format == CSV {
		s.quotes = &quotes{}
	}
	return s
}

// next returns the text of the next row, with the end of its line. The text is good until the next call.
// The error is io.EOF behind the last row. After any other error the text so far may be a part of a row,
// and is dropped.
func (s *scanner) next() ([]byte, error) {
	for s.text = s.text[:0]; ; {
		part, err := s.in.ReadSlice('\n')
		s.text = append(s.text, part...)
		switch {
		case len(s.text) > mostRow:
			return nil, errLongRow
		case errors.Is(err, io.EOF) && len(s.text) > 0 && s.pipe:
			return nil, errCutRow
		case errors.Is(err, io.EOF) && len(s.text) > 0:
			return s.text, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
		if s.quotes != nil {
			s.quotes.read(part)
		}
		if err == nil && (s.quotes == nil || s.quotes.at != quoted) {
			return s.text, nil
		}
	}
}

// quotes follows the quotes of CSV (RFC 4180). Behind a quote that stands in a wrong place, the row ends
// with its line, so that a row that encoding/csv refuses takes no other row along.
type quotes struct{ at place }

// place is a place within a row of CSV.
type place int

const (
	begin  place = iota // of a field
	plain               // in a field without quotes
	quoted              // in a field with quotes
	closed              // behind a quote that closes the field, or is the first of two
	wrong               // behind a quote in a wrong place
)

func (q *quotes) read(part []byte) {
	if q.at == begin && bytes.IndexByte(part, '"') < 0 && bytes.HasSuffix(part, []byte{'\n'}) {
		return
	}
	for _, c := range part {
		switch {
		case q.at == quoted && c == '"':
			q.at = closed
		case q.at == quoted:
		case q.at == closed && c == '"':
			q.at = quoted
		case c == '\n', c == ',' && q.at != wrong:
			q.at = begin
		case q.at == begin && c == '"':
			q.at = quoted
		case c == '"', q.at == closed, q.at == wrong: // the CR behind a quote that closed is wrong until its LF
			q.at = wrong
		default:
			q.at = plain
		}
	}
}
