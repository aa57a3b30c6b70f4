package postgres

import (
	"encoding/binary"
	"io"
	"sync"

	"github.com/midgehq/midge/storage/internal/engine"
	"github.com/midgehq/midge/storage/internal/record"
)

const copyRows = "COPY {schema}.tasks " +
	"(sort, turn, version, line, queue, flags, priority, id, lease, past, record) FROM STDIN BINARY"

// The form that COPY reads (www.postgresql.org/docs/current/sql-copy.html): a header, rows whose
// columns stand behind their lengths, and an end.
const (
	bulkHeader = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"
	bulkEnd    = "\xff\xff"
	bulkWidth  = 11
)

// buffers are buffers of packed rows, to be used again. Each holds as much as the driver reads at a
// time (64 KiB) and one more row. A buffer that a payload made larger than bufferMost is not kept.
var buffers sync.Pool

const (
	bufferSize = 80 << 10
	bufferMost = 128 << 10
)

func newBuffer() []byte {
	if b, some := buffers.Get().(*[]byte); some {
		return (*b)[:0]
	}
	return make([]byte, 0, bufferSize)
}

// packer is rows in the form that COPY reads. Read packs them.
type packer struct {
	rows int
	pack func(to []byte, i int) []byte // appends the i-th row

	mu     sync.Mutex // guards the fields below: after an error the driver may go on reading
	closed bool
	made   int // rows packed so far
	buf    []byte
	unread []byte // the rest of buf
}

func newPacker(rows int, pack func(to []byte, i int) []byte) *packer {
	p := &packer{rows: rows, pack: pack, buf: append(newBuffer(), bulkHeader...)}
	p.unread = p.buf
	return p
}

// Read reads the next bytes of the rows.
func (p *packer) Read(to []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, io.ErrClosedPipe
	}
	if len(p.unread) < len(to) {
		p.buf = append(p.buf[:0], p.unread...)
		for len(p.buf) < len(to) && p.made < p.rows {
			p.buf = p.pack(p.buf, p.made)
			if p.made++; p.made == p.rows {
				p.buf = append(p.buf, bulkEnd...)
			}
		}
		p.unread = p.buf
	}
	n := copy(to, p.unread)
	if p.unread = p.unread[n:]; n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// close ends reading, so that the rows belong to their callers again.
func (p *packer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed && cap(p.buf) <= bufferMost {
		buf := p.buf // apart: a pointer into p would keep the callers' rows
		buffers.Put(&buf)
	}
	p.closed, p.buf, p.unread = true, nil, nil
}

// columns are the columns of a row of tasks that has no lease and stands in a line without a name. The
// record is apart.
type columns struct {
	sort, turn, version int64
	queue               int32
	state               engine.State
	flags               engine.Flags
	priority            int16
	id, past            []byte
}

// append packs a row.
func (c *columns) append(to []byte, sp *engine.Spec, rest []byte) []byte {
	to = binary.BigEndian.AppendUint16(to, bulkWidth)
	to = column64(column64(column64(to, c.sort), c.turn), c.version)
	to = column32(column64(to, int64(c.queue)*16+int64(c.state)), c.queue) // the function line
	to = column16(column16(to, int16(c.flags)), c.priority)
	to = columnBytes(columnBytes(columnBytes(to, c.id), nil), c.past)
	size := len(to)
	to = record.AppendSpec(append(to, 0, 0, 0, 0), sp, rest)
	binary.BigEndian.PutUint32(to[size:], uint32(len(to)-size-4))
	return to
}

func column64(to []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(append(to, 0, 0, 0, 8), uint64(v))
}

func column32(to []byte, v int32) []byte {
	return binary.BigEndian.AppendUint32(append(to, 0, 0, 0, 4), uint32(v))
}

func column16(to []byte, v int16) []byte {
	return binary.BigEndian.AppendUint16(append(to, 0, 0, 0, 2), uint16(v))
}

func columnBytes(to, v []byte) []byte {
	return append(binary.BigEndian.AppendUint32(to, uint32(len(v))), v...)
}
