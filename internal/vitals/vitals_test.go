package vitals

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/midgehq/midge/internal/packed"
	"github.com/midgehq/midge/storage"
)

func TestWhatIsWrittenIsRead(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		v := Vitals{Memory: random.Int64N(1 << 40), Goroutines: random.IntN(1000), Omitted: random.IntN(3)}
		for i := range random.IntN(12) {
			k := Kind{Name: fmt.Sprintf("kind%02d", i), Failed: random.Uint64N(100)}
			for range 1 + random.IntN(50) {
				k.Runs.Add(time.Duration(random.Int64N(1 << random.IntN(60))))
			}
			v.Kinds = append(v.Kinds, k)
		}
		got, err := Decode(v.Encode())
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(got.Kinds, func(a, b Kind) int { return strings.Compare(a.Name, b.Name) })
		if !reflect.DeepEqual(got, v) {
			t.Fatalf("got %+v, want %+v", got, v)
		}
	}
}

func TestKindsWithTheMostRunsHaveRoom(t *testing.T) {
	var v Vitals
	for i := range 300 {
		k := Kind{Name: fmt.Sprintf("%03d", i) + strings.Repeat("x", storage.MaxName-3)}
		for j := range buckets {
			k.Runs[j] = uint64(i + 1) // many bytes
		}
		v.Kinds = append(v.Kinds, k)
	}
	b := v.Encode()
	got, err := Decode(b)
	if err != nil || len(b) > storage.MaxVitals {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	if n := len(got.Kinds); n == 0 || n > MaxKinds || n+got.Omitted != 300 || got.Kinds[0].Name[:3] != "299" {
		t.Errorf("%d kinds and %d omitted, the first is %s", n, got.Omitted, got.Kinds[0].Name)
	}
	if v.Kinds = v.Kinds[:150]; len(v.Kinds) != 150 {
		t.Fatal("150 kinds")
	}
	for i := range v.Kinds {
		v.Kinds[i] = Kind{Name: fmt.Sprint(i), Runs: Histogram{1}}
	}
	if got, err = Decode(v.Encode()); err != nil || len(got.Kinds) != MaxKinds || got.Omitted != 50 {
		t.Errorf("%d kinds and %d omitted, %v", len(got.Kinds), got.Omitted, err)
	}
}

func TestQuantilesAreNear(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		var h Histogram
		var all []time.Duration
		scale := 10 * time.Microsecond << random.IntN(24)
		for range 2000 {
			d := time.Duration(random.ExpFloat64() * float64(scale))
			all = append(all, d)
			h.Add(d)
		}
		slices.Sort(all)
		for _, part := range []float64{0.5, 0.95, 0.99} {
			got, want := h.Quantile(part).Seconds(), all[int(part*2000)].Seconds()
			if got < want*0.8-2e-6 || got > want*1.2+2e-6 {
				t.Errorf("the %v of %v: got %v s, want %v s", part, scale, got, want)
			}
		}
	}
	var none Histogram
	if got := none.Quantile(0.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

func TestBucketsFollowEachOther(t *testing.T) {
	last := -1
	for us := range int64(1 << 12) {
		b := bucket(time.Duration(us) * time.Microsecond)
		low, high := bounds(b)
		if float64(us) < low || float64(us) >= high || b < last || b > last+1 {
			t.Fatalf("%d µs are in bucket %d, from %v to %v, behind %d", us, b, low, high, last)
		}
		last = b
	}
	if got := bucket(1 << 62); got != buckets-1 {
		t.Errorf("the longest is in bucket %d", got)
	}
	if got := bucket(-1); got != 0 {
		t.Errorf("a negative one is in bucket %d", got)
	}
}

func TestSinceAnEarlierState(t *testing.T) {
	var h Histogram
	h.Add(time.Second)
	earlier := h
	h.Add(time.Second)
	h.Add(time.Minute)
	since, ok := h.Since(&earlier)
	if !ok || since.Count() != 2 {
		t.Errorf("got %d, %t", since.Count(), ok)
	}
	if _, ok := earlier.Since(&h); ok {
		t.Error("fewer than before")
	}
	earlier.Merge(&since)
	if earlier != h {
		t.Errorf("got %v, want %v", earlier, h)
	}
}

func TestCountersCountSideBySide(t *testing.T) {
	c := NewCounters([]string{"a", "b", "c"})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 1000 {
				c.At(0).Count(time.Duration(i)*time.Millisecond, i%10 == 0)
				c.At(2).Count(0, false)
			}
		})
	}
	all.Wait()
	(*Counter)(nil).Count(0, true)
	v := c.Read()
	if len(v.Kinds) != 2 || v.Kinds[0].Name != "a" || v.Kinds[1].Name != "c" {
		t.Fatalf("got %+v", v.Kinds)
	}
	if v.Kinds[0].Runs.Count() != 8000 || v.Kinds[0].Failed != 800 || v.Kinds[1].Runs.Count() != 8000 {
		t.Errorf("got %+v", v.Kinds)
	}
	if v.Memory < 1<<20 || v.Goroutines < 1 {
		t.Errorf("%d bytes and %d goroutines", v.Memory, v.Goroutines)
	}
}

func TestDamagedVitals(t *testing.T) {
	v := Vitals{Memory: 1 << 30, Goroutines: 10, Kinds: []Kind{{Name: "a", Failed: 1, Runs: Histogram{1, 2, 3}}}}
	b := v.Encode()
	for i := range b {
		for bit := range 8 {
			bad := slices.Clone(b)
			bad[i] ^= 1 << bit
			if _, err := Decode(bad); err == nil {
				t.Errorf("bit %d of byte %d turned is not found", bit, i)
			}
		}
		if _, err := Decode(b[:i]); err == nil && i > 0 {
			t.Errorf("cut at byte %d is not found", i)
		}
	}
	if got, err := Decode(nil); err != nil || !reflect.DeepEqual(got, Vitals{}) {
		t.Errorf("no vitals: %+v, %v", got, err)
	}
}

// FuzzDecode adds a valid checksum to each input, so that it tests the decoding of
// damaged contents.
func FuzzDecode(f *testing.F) {
	v := Vitals{Memory: 1, Kinds: []Kind{{Name: "a", Failed: 1, Runs: Histogram{1, 2, 3}}}}
	f.Add(v.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < 4 {
			return
		}
		got, err := Decode(packed.Seal(slices.Clone(b[:len(b)-4])))
		if err != nil {
			return
		}
		again, err := Decode(got.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if len(again.Kinds) != len(got.Kinds) || again.Memory != got.Memory || again.Omitted != got.Omitted {
			t.Errorf("got %+v, then %+v", got, again)
		}
	})
}

func BenchmarkCount(b *testing.B) {
	c := NewCounters([]string{"a"}).At(0)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Count(time.Millisecond, false)
		}
	})
}
