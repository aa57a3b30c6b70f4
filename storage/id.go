package storage

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	mathrand "math/rand/v2"
	"sync"
	"time"
)

// NewID makes a task id: 26 lower-case characters that sort by the time at which they were
// made. They hold 48 bits of milliseconds and 80 random bits, as a ULID does
// (github.com/ulid/spec), in base32hex. The ids of one process sort in the order in which
// they were made: within a millisecond, or if the clock was set back, each id is greater
// than the one before by a random number up to 2^32.
func NewID() string {
	id := ids.next(time.Now())
	return idEncoding.EncodeToString(id[:])
}

var idEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// ids makes the ids of this process.
var ids idSource

// idSource makes ids that grow: keys that come in the order of an index cost the index less
// and leave its pages full.
type idSource struct {
	mu   sync.Mutex // guards ms and last
	ms   int64      // of the last id that was wholly random
	last [16]byte
}

func (s *idSource) next(now time.Time) [16]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ms := now.UnixMilli(); ms > s.ms {
		s.ms = ms
		_, _ = rand.Read(s.last[6:]) // never fails (crypto/rand)
		s.last[6] &= 0x7f            // room to grow, for longer than a process lives
		binary.BigEndian.PutUint16(s.last[:], uint16(ms>>32))
		binary.BigEndian.PutUint32(s.last[2:], uint32(ms))
		return s.last
	}
	high, low := s.last[6:8], s.last[8:]
	was := binary.BigEndian.Uint64(low)
	is := was + 1 + uint64(mathrand.Uint32())
	binary.BigEndian.PutUint64(low, is)
	if is < was {
		binary.BigEndian.PutUint16(high, binary.BigEndian.Uint16(high)+1)
	}
	return s.last
}

// NewToken makes the token of one Claim call.
func NewToken() Token { return Token(random16()) }

func random16() (b [16]byte) {
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return b
}
