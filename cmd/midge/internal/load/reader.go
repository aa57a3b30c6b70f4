package load

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/midgehq/midge/storage"
)

const (
	// rowsPerStep bounds the rows of one step, so that the step holds a Redis for less than 3 ms. A row with
	// a partition takes three times as long there.
	rowsPerStep        = 750
	partitionedPerStep = rowsPerStep / 3
	// bytesPerStep bounds the payloads of a step with more than one task.
	bytesPerStep = 1 << 20
	// markerRoom is the room that a step keeps for its marker.
	markerRoom = 16 << 10
	// mostPayload bounds the parameters of a task, because the marker has to fit into the same step.
	mostPayload = storage.MaxTxBytes - markerRoom - storage.MaxHeaderBytes
)

// position is a place between two rows of a text.
type position struct {
	bytes, lines, rows, rejected int64
}

// step is a part of a file that is loaded at once.
type step struct {
	from, to position
	before   string // SHA-256 of the text before the step
	sum      string // SHA-256 of the text up to its end
	done     int64  // bytes of the file that were read
	inserts  []storage.Insert
	rejects  []byte // the texts of the rejected rows
	last     bool   // the file ends with the step
	err      error  // why nothing can be read behind the step, nil if it can
}

// reader reads a file in steps.
type reader struct {
	name    string // of the load, for the ids
	file    string // for errors
	rejects bool   // wrong rows are rejected
	most    int64  // rows of a step
	text    *text
	scanner *scanner
	parser  *parser
	hash    hash.Hash // of the text up to at
	at      position
	header  []byte // of CSV, with the end of its line
	held    *row   // did not fit into the last step
}

// row is a row of the file that was not blank.
type row struct {
	text   []byte
	insert storage.Insert
	reason string // why there is no insert
}

var bom = []byte{0xef, 0xbb, 0xbf}

// take counts a text as read.
func (r *reader) take(text []byte) {
	r.hash.Write(text) // never fails (hash.Hash)
	r.at.bytes += int64(len(text))
	r.at.lines += int64(bytes.Count(text, []byte{'\n'}))
}

// line returns the number of the line at which the reader is.
func (r *reader) line() int64 { return r.at.lines + 1 }

// begin reads what stands before the first row: a byte order mark, and the header of CSV.
func (r *reader) begin() error {
	// an error comes again with the first read
	if head, _ := r.scanner.in.Peek(len(bom)); bytes.Equal(head, bom) {
		r.take(bom)
		_, _ = r.scanner.in.Discard(len(bom)) // they are buffered
	}
	for r.parser.Format == CSV {
		text, err := r.scanner.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return r.unread(err)
		}
		if r.parser.blank(text) {
			r.take(text)
			continue
		}
		if reason := r.parser.header(text); reason != "" {
			return &RowError{File: r.file, Line: r.line(), Reason: reason}
		}
		r.header = bytes.Clone(text)
		r.take(text)
		break
	}
	return nil
}

// unread returns the error for a file that cannot be read.
func (r *reader) unread(err error) error {
	if errors.Is(err, errLongRow) || errors.Is(err, errCutRow) {
		return &RowError{File: r.file, Line: r.line(), Reason: err.Error()}
	}
	return fmt.Errorf("read %s behind line %d: %w", r.file, r.at.lines, err)
}

// errOther means that the text is not the text whose digest is known.
var errOther = errors.New("another text")

// skip reads up to the place between two rows where a text with the digest sum ends.
func (r *reader) skip(ctx context.Context, to position, sum string) error {
	if to.bytes == 0 { // nothing was read so far, not even the header
		return nil
	}
	if to.bytes < r.at.bytes {
		return errOther
	}
	var last byte = '\n'
	part := make([]byte, 256<<10)
	for r.at.bytes < to.bytes {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := r.scanner.in.Read(part[:min(int64(len(part)), to.bytes-r.at.bytes)])
		for _, c := range part[max(n-1, 0):n] {
			last = c
		}
		r.take(part[:n])
		switch {
		case errors.Is(err, io.EOF) && r.at.bytes < to.bytes:
			return errOther
		case err != nil && !errors.Is(err, io.EOF):
			return r.unread(err)
		}
	}
	r.at.rows, r.at.rejected = to.rows, to.rejected
	next, _ := r.scanner.in.Peek(1) // an error comes again with the next read
	if last != '\n' && len(next) > 0 && next[0] != '\n' && next[0] != '\r' {
		return errOther // the last row has grown
	}
	if r.sum() != sum {
		return errOther
	}
	return nil
}

func (r *reader) sum() string { return hex.EncodeToString(r.hash.Sum(nil)) }

// row returns the next row. The error is io.EOF at the end of the file.
func (r *reader) row() (*row, error) {
	if held := r.held; held != nil {
		r.held = nil
		return held, nil
	}
	for {
		text, err := r.scanner.next()
		if err != nil {
			return nil, err
		}
		if r.parser.blank(text) {
			r.take(text)
			continue
		}
		in, reason := r.parser.insert(rowID(r.name, r.at.rows+1), text)
		return &row{text: text, insert: in, reason: reason}, nil
	}
}

// step reads the next step. Its last or its err ends the file.
func (r *reader) step(ctx context.Context) *step {
	s := &step{from: r.at, before: r.sum(), inserts: make([]storage.Insert, 0, r.most)}
	one := storage.Tx{Inserts: make([]storage.Insert, 1)}
	for size := 0; r.at.rows < s.from.rows+r.most && len(s.rejects) < bytesPerStep; {
		next, err := r.row()
		if errors.Is(err, io.EOF) {
			s.last = true
			break
		}
		if err != nil {
			s.err = r.unread(err)
			break
		}
		if ctx.Err() != nil {
			s.err = context.Cause(ctx)
			break
		}
		if next.reason != "" && !r.rejects {
			s.err = &RowError{r.file, r.line(), next.reason, true}
			break
		}
		one.Inserts[0] = next.insert
		size += one.Bytes()
		if len(s.inserts) > 0 && size > bytesPerStep {
			r.held = next
			break
		}
		r.take(next.text)
		r.at.rows++
		if next.reason == "" {
			s.inserts = append(s.inserts, next.insert)
			continue
		}
		r.at.rejected++
		s.rejects = append(s.rejects, next.text...)
		if !bytes.HasSuffix(next.text, []byte{'\n'}) {
			s.rejects = append(s.rejects, '\n')
		}
	}
	s.to, s.sum, s.done = r.at, r.sum(), r.at.bytes
	if r.text.read != nil {
		s.done = r.text.read.n.Load() // which may be some bytes ahead
	}
	return s
}

// steps reads steps into out until the file or ctx ends.
func (r *reader) steps(ctx context.Context, out chan<- *step) {
	defer close(out)
	for {
		s := r.step(ctx)
		select {
		case out <- s:
		case <-ctx.Done():
			return
		}
		if s.last || s.err != nil {
			return
		}
	}
}

func newHash() hash.Hash { return sha256.New() }
