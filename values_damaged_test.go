package midge_test

import (
	"context"
	"errors"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// broad is a job with a field of each form.
type broad struct {
	N      int8
	U      uint64
	F      float32
	Text   string
	Bytes  []byte
	Arr    [3]int
	At     time.Time
	Addr   netip.Addr
	Big    *big.Int
	Any    any
	Anys   map[string]any
	List   []*broadIn
	Named  map[word][]int
	Nested struct{ Deep []struct{ To *string } }
	Empty  struct{}
	Self   *broad
}

type broadIn struct {
	ID   int `midge:"was=Number"`
	Text string
}

func (broad) Kind() string { return "broad" }

type broadJSON broad

func (broadJSON) Kind() string           { return "broad" }
func (broadJSON) Options() midge.Options { return midge.Options{Encoding: midge.JSON} }

func broadJob() broad {
	to := "to"
	b := broad{
		N: -7, U: 1 << 60, F: 0.5, Text: "ä", Bytes: []byte{1, 2}, Arr: [3]int{1, 2, 3}, At: time.Unix(7, 0), Addr: netip.IPv6Loopback(),
		Big: big.NewInt(1 << 40), Any: []any{1, "a", nil, true}, Anys: map[string]any{"a": map[string]any{"b": 0.5}},
		List: []*broadIn{{1, "a"}, nil}, Named: map[word][]int{"a": {1}}, Self: &broad{Text: "inner", Big: big.NewInt(1)},
	}
	b.Nested.Deep = []struct{ To *string }{{&to}}
	return b
}

// damaged returns a payload with random damage.
func damaged(random *rand.Rand, payload []byte) []byte {
	b := slices.Clone(payload)
	for range 1 + random.IntN(4) {
		at := random.IntN(len(b))
		switch random.IntN(6) {
		case 0:
			b[at] ^= 1 << random.IntN(8)
		case 1:
			b[at] = byte(random.Uint32())
		case 2:
			b = append(b[:at:at], b[at+random.IntN(len(b)-at):]...)
		case 3:
			b = append(b, b[at:]...)
		case 4: // heads of MessagePack that announce parts that are not there
			heads := []string{"\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff", "\xdb\xff\xff\xff\xff", "\xc6\xff\xff\xff\xff", "\xc9\xff\xff\xff\xff\xff", "\xc7\x0c\xff", "\xc1"}
			b = slices.Insert(b, at, []byte(heads[random.IntN(len(heads))])...)
		default:
			parts := []string{"{", "}", "[", "]", "\"", ",", ":", "null", "1e999", "-", "\\u", "\xff", "\x00"}
			b = slices.Insert(b, at, []byte(parts[random.IntN(len(parts))])...)
		}
		if len(b) == 0 {
			b = []byte{0}
		}
	}
	return b
}

// TestADamagedPayloadStopsNobody stores damaged payloads, as no client would. Each task runs once, or
// waits as undecodable, and the runner works on.
func TestADamagedPayloadStopsNobody(t *testing.T) {
	for i, job := range []any{broadJob(), broadJSON(broadJob())} {
		bubble(t, func(b *bench) {
			ran := make(map[string]int)
			b.runner = b.newRunner(b.store, midge.RunnerConfig{Logger: zap.NewNop()}, nil)
			must(midge.Handle(b.runner, func(ctx context.Context, _ broad) error {
				info, _ := midge.Current(ctx)
				ran[info.Ref.ID]++
				return nil
			}))
			must(b.runner.SetConcurrency(1))
			whole := must1(b.client.Enqueue(b.ctx, job))
			random := rand.New(rand.NewPCG(10, uint64(i)))
			payloads := map[midge.Ref][]byte{b.stored(whole, nil): nil}
			for range 200 {
				payload := damaged(random, whole.Payload)
				payloads[b.stored(whole, payload)] = payload
			}
			last := must1(b.client.Enqueue(b.ctx, job))
			go func() { b.done <- b.runner.Run(b.ctx) }()
			b.after(time.Second)
			for ref, payload := range payloads {
				task, err := b.store.Task(b.ctx, ref)
				switch {
				case errors.Is(err, midge.ErrNotFound) && ran[ref.ID] == 1:
				case err != nil:
					t.Errorf("%q: %v after %d runs, want one", payload, err, ran[ref.ID])
				case task.State != storage.Scheduled || !strings.HasPrefix(task.Reason, "undecodable payload") || task.Retries+ran[ref.ID] != 0:
					t.Errorf("%q is %s, %q after %d runs; want it put off as undecodable", payload, task.State, task.Reason, ran[ref.ID])
				}
			}
			if ran[whole.ID] != 1 || ran[last.ID] != 1 {
				t.Errorf("the whole tasks ran %d and %d times, want once", ran[whole.ID], ran[last.ID])
			}
		})
	}
}

// stored inserts a task like another one with a payload that no client has encoded.
func (b *bench) stored(like midge.Task, payload []byte) midge.Ref {
	b.Helper()
	in := storage.Insert{
		Ref: ref(like.Queue, storage.NewID()), Kind: like.Kind, Encoding: like.Encoding, Payload: payload, MaxRetries: 5, CrashLimit: 3,
	}
	if _, err := storage.NewSession(b.store, 0).ApplyOne(b.ctx, storage.Tx{Inserts: []storage.Insert{in}}); err != nil {
		b.Fatal(err)
	}
	return in.Ref
}
