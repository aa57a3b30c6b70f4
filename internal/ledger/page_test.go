package ledger

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/packed"
)

// randomPage returns a page of minutes or of hours with random samples, and these samples.
func randomPage(random *rand.Rand) (*page, []sample) {
	p := newPage([]string{minutePages, hourPages}[random.IntN(2)], 12345, 1+random.IntN(3))
	for i := range random.IntN(6) {
		p.queues = append(p.queues, counted{fmt.Sprintf("q%d", i), totals{random.Int64N(1e9), 1, 2, 3}})
	}
	var all []sample
	for slot := random.IntN(3); slot < p.slots(); slot += 1 + random.IntN(3) {
		if random.IntN(3) == 0 {
			p.queues = append(p.queues, counted{name: fmt.Sprintf("late%d", slot)})
			p.kinds = append(p.kinds, fmt.Sprintf("kind%d", slot))
		}
		s := sample{slot: slot, span: 1 + random.IntN(3), gap: random.IntN(2) == 0, blind: random.IntN(2) == 0}
		for at := range p.queues {
			f := queueFigures{
				at: at, totals: totals{random.Int64N(3), random.Int64N(1000), random.Int64N(2), random.Int64N(2)},
				waiting: random.Int64N(3) * random.Int64N(1e6), oldest: random.Int64N(3),
			}
			if f != (queueFigures{at: at}) && random.IntN(3) > 0 {
				s.queues = append(s.queues, f)
			}
		}
		for at := range p.kinds {
			if random.IntN(2) == 0 {
				s.kinds = append(s.kinds, kindFigures{at, random.Int64N(1e6), random.Int64N(9), 1, 2, byte(random.IntN(256))})
			}
		}
		all = append(all, s)
		p.append(&s)
	}
	return p, all
}

// samples returns copies of all samples of a page.
func samples(t *testing.T, p *page) (all []sample) {
	t.Helper()
	err := p.each(func(s *sample) {
		c := *s
		c.queues, c.kinds = slices.Clone(s.queues), slices.Clone(s.kinds)
		all = append(all, c)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAPageIsReadAsItWasWritten(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		p, want := randomPage(random)
		got, err := decode(p.encode())
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.queues, p.queues) || !reflect.DeepEqual(got.kinds, p.kinds) ||
			got.parts != p.parts || got.start != p.start || got.last != p.last {
			t.Fatalf("got %+v, want %+v", got, p)
		}
		read := samples(t, got)
		for i := range want {
			if fmt.Sprint(read[i]) != fmt.Sprint(want[i]) {
				t.Fatalf("sample %d: got %v, want %v", i, read[i], want[i])
			}
		}
	}
}

func TestDamageToAPageIsFound(t *testing.T) {
	p, _ := randomPage(rand.New(rand.NewPCG(3, 4)))
	b := p.encode()
	for i := range b {
		bad := slices.Clone(b)
		bad[i] ^= 1 << (i % 8)
		if _, err := decode(bad); err == nil {
			t.Errorf("byte %d turned is not found", i)
		}
		if _, err := decode(b[:i]); err == nil {
			t.Errorf("cut at byte %d is not found", i)
		}
	}
}

// FuzzPage adds a valid checksum to each input, so that it tests the decoding of damaged contents. A page
// that can be read can be appended to, and can be read again.
func FuzzPage(f *testing.F) {
	p, _ := randomPage(rand.New(rand.NewPCG(5, 6)))
	f.Add(p.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 4 {
			return
		}
		p, err := decode(packed.Seal(slices.Clone(b[:len(b)-4])))
		if err != nil {
			return
		}
		g := &grid{from: p.start, step: 1, n: 60} // longer than a page of minutes
		g.add([]stored{{page: p}}, 0, 1<<40)
		g.series()
		before := len(samples(t, p))
		if p.last < p.slots()-1 {
			p.append(&sample{slot: p.last + 1, span: 1})
			again, err := decode(p.encode())
			if err != nil {
				t.Fatal(err)
			}
			if n := len(samples(t, again)); n != before+1 {
				t.Errorf("%d samples, want %d", n, before+1)
			}
		}
	})
}

func TestSharesAddUp(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for range 1000 {
		whole, parts := random.Int64N(1e6), 1+random.Int64N(100)
		sum, least, most := int64(0), int64(1<<62), int64(0)
		for k := range parts {
			n := share(whole, k, parts)
			sum, least, most = sum+n, min(least, n), max(most, n)
		}
		if sum != whole || most-least > 1 {
			t.Errorf("%d in %d parts: sum %d, from %d to %d", whole, parts, sum, least, most)
		}
	}
}

func TestDurationsInAByte(t *testing.T) {
	for d := time.Microsecond; d < 50*24*time.Hour; d = d*9/8 + 1 {
		if got := unpackDuration(packDuration(d)).Seconds(); got < d.Seconds()*0.94 || got > d.Seconds()*1.06 {
			t.Errorf("%v: got %v s", d, got)
		}
	}
	if packDuration(0) != 0 || unpackDuration(0) != 0 || packDuration(1<<62) != 255 {
		t.Error("the ends")
	}
}
