package postgres

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/midgehq/midge/internal/testserver"
	"github.com/midgehq/midge/storage"
)

// manyInserts returns a part with many inserts, one of them larger than the driver reads at a time.
func manyInserts() ([]*part, map[string]int32) {
	txs := make([]storage.Tx, 200)
	for i := range txs {
		in := storage.Insert{
			Ref: storage.Ref{Queue: "q", ID: storage.NewID()}, Kind: "kind", Encoding: "json",
			Payload: []byte(strings.Repeat("x", i)), Delay: time.Duration(i%3) * time.Second,
		}
		if i == 100 {
			in.Payload = make([]byte, 200<<10)
		}
		txs[i].Inserts = []storage.Insert{in}
	}
	return []*part{newPart(storage.Call{}, txs[:50]), newPart(storage.Call{}, txs[50:])}, map[string]int32{"q": 7}
}

// TestRowsAreReadInPieces reads rows byte by byte, in odd pieces and at once, and expects the same
// bytes.
func TestRowsAreReadInPieces(t *testing.T) {
	parts, queues := manyInserts()
	read := func(piecewise func(io.Reader) io.Reader) ([]byte, *bulk) {
		t.Helper()
		b := newBulk(parts, queues)
		b.base = 1_800_000_000_000_000
		b.now = b.base
		all, err := io.ReadAll(piecewise(b))
		if err != nil {
			t.Fatal(err)
		}
		return all, b
	}
	want, b := read(func(r io.Reader) io.Reader { return r })
	if !bytes.HasPrefix(want, []byte(bulkHeader)) || !bytes.HasSuffix(want, []byte(bulkEnd)) {
		t.Error("the rows have no header, or no end")
	}
	if b.dwaiting[0] != 67 || b.dscheduled[0] != 133 || b.firsts[0] != b.base+1+1_000_000 || b.span != 201 {
		t.Errorf("got %d waiting, %d scheduled from %d on, in %d versions", b.dwaiting[0], b.dscheduled[0], b.firsts[0], b.span)
	}
	for name, piecewise := range map[string]func(io.Reader) io.Reader{
		"byte by byte": iotest.OneByteReader, "halves": iotest.HalfReader,
	} {
		if got, _ := read(piecewise); !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, want the same %d", name, len(got), len(want))
		}
	}
}

// TestClosedRowsAreLeftAlone closes rows that are half read, and expects that no insert is read any
// more.
func TestClosedRowsAreLeftAlone(t *testing.T) {
	parts, queues := manyInserts()
	b := newBulk(parts, queues)
	if _, err := b.Read(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	b.close()
	b.close()
	parts[0].txs, parts[1].txs = nil, nil
	if n, err := b.Read(make([]byte, 100)); n != 0 || err == nil || errors.Is(err, io.EOF) {
		t.Errorf("got %d bytes, error %v, want an error, which takes the copy back", n, err)
	}
}

// TestARefusedCopyHangsUp has the server refuse rows, and expects that the connection is not used
// again.
func TestARefusedCopyHangsUp(t *testing.T) {
	testserver.RequirePostgres(t)
	server := testserver.Postgres(t, testserver.PostgresOptions{Unsafe: true})
	cfg := Config{URL: server.URL()}
	if err := Migrate(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	tx, err := s.begin(t.Context(), s.pool)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.close(t.Context())
	if err := tx.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn := tx.conn.Conn()
	if err := tx.copy(t.Context(), copyRows, strings.NewReader("no rows")); err == nil || !conn.IsClosed() {
		t.Errorf("got error %v, closed %v; want the copy refused and the connection hung up", err, conn.IsClosed())
	}
}
