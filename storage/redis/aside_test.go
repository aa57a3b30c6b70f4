package redis

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/midgehq/midge/storage"
)

// sizesOf inserts tasks of random sizes and priorities, and returns their payloads by id.
func sizesOf(t *testing.T, s *Storage, random *rand.Rand) map[string][]byte {
	t.Helper()
	sizes := []int{0, 1, 100, aloneRecord, largePayload, largePayload + 1, 300_000, 900_000}
	payloads := make(map[string][]byte)
	for i := range 30 {
		tx := insertOf("mail", fmt.Sprintf("t%d", i))
		in := &tx.Inserts[0]
		in.Priority = random.IntN(3) - 1
		in.Payload = bytes.Repeat([]byte{byte(i)}, sizes[random.IntN(len(sizes))])
		payloads[in.Ref.ID] = in.Payload
		if _, err := s.Apply(t.Context(), storage.Call{}, tx); err != nil {
			t.Fatal(err)
		}
	}
	return payloads
}

// drained claims tasks until none is left, and returns the ids of each claim as text. It checks that each
// task comes with its payload, and that a claim returns no more of them than it may.
func drained(t *testing.T, s *Storage, payloads map[string][]byte, most int) string {
	t.Helper()
	text := ""
	for n := 1; len(payloads) > 0; n++ {
		c, err := s.Claim(t.Context(), asking(callOf(uint64(n)), most, "mail"))
		if err != nil || len(c.Tasks) == 0 {
			t.Fatalf("%d tasks are left: claimed none, %v", len(payloads), err)
		}
		all := 0
		for i := range c.Tasks {
			task := &c.Tasks[i]
			all += len(task.Payload)
			text += task.ID + " "
			if want, left := payloads[task.ID]; !left || !bytes.Equal(task.Payload, want) {
				t.Errorf("%s: got %d bytes, want %d; it was left: %v", task.ID, len(task.Payload), len(want), left)
			}
			delete(payloads, task.ID)
		}
		if all > storage.MaxClaimBytes && len(c.Tasks) > 1 || !c.More && len(payloads) > 0 {
			t.Errorf("a claim of %d tasks and %d bytes, more %v, and %d are left", len(c.Tasks), all, c.More, len(payloads))
		}
		text += fmt.Sprint(c.More, "\n")
	}
	return text
}

// TestClaimsOfLargePayloads: claims are cut if the payloads fill the reply, by both ways after the same
// task, and nothing comes twice or never.
func TestClaimsOfLargePayloads(t *testing.T) {
	for seed := range uint64(8) {
		results := make([]string, 2)
		for way := range results {
			s, _ := openMiniBy(t, way == 1)
			random := rand.New(rand.NewPCG(seed, 0))
			results[way] = drained(t, s, sizesOf(t, s, random), 5+int(seed)*5)
		}
		if results[0] != results[1] {
			t.Errorf("seed %d: the short way claimed\n%sand the general way\n%s", seed, results[0], results[1])
		}
	}
}

// TestADamagedLargePayload: a payload that is not there, or has another size, sets its task apart, and the
// other tasks of the claim come.
func TestADamagedLargePayload(t *testing.T) {
	for _, general := range []bool{false, true} {
		s, server := openMiniBy(t, general)
		for i := range 5 {
			tx := insertOf("mail", fmt.Sprintf("t%d", i))
			tx.Inserts[0].Payload = bytes.Repeat([]byte{1}, 2*largePayload)
			if _, err := s.Apply(t.Context(), storage.Call{}, tx); err != nil {
				t.Fatal(err)
			}
		}
		server.HDel("midge:{mail}:side", "b:t1")
		server.HSet("midge:{mail}:side", "b:t3", "short")
		c, err := s.Claim(t.Context(), asking(callOf(1), 5, "mail"))
		var ids []string
		for i := range c.Tasks {
			ids = append(ids, c.Tasks[i].ID)
			if c.Fences[i].Ref != c.Tasks[i].Ref {
				t.Errorf("%s has the fence of %s", c.Tasks[i].Ref, c.Fences[i].Ref)
			}
		}
		if want := []string{"t0", "t2", "t4"}; err != nil || !slices.Equal(ids, want) {
			t.Errorf("general %v: got %v, %v, want %v", general, ids, err, want)
		}
		stats, err := s.Stats(t.Context(), "mail")
		if err != nil || stats[0].Damaged != 2 || stats[0].Pending != 3 {
			t.Errorf("general %v: got %+v, %v, want 2 damaged and 3 pending tasks", general, stats, err)
		}
	}
}

// severing is a hook of go-redis that loses the reply to the last command of each pipeline.
type severing struct{ goredis.Hook }

func (severing) DialHook(next goredis.DialHook) goredis.DialHook          { return next }
func (severing) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

func (severing) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		err := next(ctx, cmds)
		cmds[len(cmds)-1].SetErr(io.ErrUnexpectedEOF)
		return cmp.Or(err, io.ErrUnexpectedEOF)
	}
}

// TestALostPayloadIsNoDamage: the reply to a read of payloads ends behind a payload that is not there. The
// outcome is unknown, no task is set apart, and a repeat of the call returns the tasks.
func TestALostPayloadIsNoDamage(t *testing.T) {
	s, server := openMini(t)
	for i := range 2 {
		tx := insertOf("mail", fmt.Sprintf("t%d", i))
		tx.Inserts[0].Payload = bytes.Repeat([]byte{1}, 2*largePayload)
		if _, err := s.Apply(t.Context(), storage.Call{}, tx); err != nil {
			t.Fatal(err)
		}
	}
	payload := server.HGet("midge:{mail}:side", "b:t0")
	server.HDel("midge:{mail}:side", "b:t0")
	server.HDel("midge:{mail}:side", "b:t1") // whichever is read first, the reply to the other one is lost
	whole := s.client
	s.client = goredis.NewUniversalClient(&goredis.UniversalOptions{Addrs: []string{server.Addr()}})
	s.client.AddHook(severing{})
	defer func() { _ = s.client.Close(); s.client = whole }()
	req := asking(callOf(1), 2, "mail")
	if c, err := s.Claim(t.Context(), req); !errors.Is(err, storage.ErrUnknown) {
		t.Errorf("got %d tasks, %v, want an unknown outcome", len(c.Tasks), err)
	}
	server.HSet("midge:{mail}:side", "b:t0", payload, "b:t1", payload)
	_ = s.client.Close()
	s.client = whole
	c, err := s.Claim(t.Context(), req)
	if err != nil || len(c.Tasks) != 2 {
		t.Errorf("a repeat: got %d tasks, %v, want 2", len(c.Tasks), err)
	}
}

// TestAClaimThatIsFullLeavesOtherQueues: of many queues it maintains the queues behind only four times a
// second.
func TestAClaimThatIsFullLeavesOtherQueues(t *testing.T) {
	s, server := openMini(t)
	start := time.Now()
	server.SetTime(start)
	var queues []string
	for i := range 2*claimQueues + 1 {
		queues = append(queues, fmt.Sprintf("q%d", i))
	}
	last := queues[len(queues)-1]
	var txs []storage.Tx
	for i := range 4 {
		txs = append(txs, insertOf(queues[0], fmt.Sprintf("t%d", i)))
	}
	late := insertOf(last, "late")
	late.Inserts[0].Delay = time.Second / 2
	if _, err := s.Apply(t.Context(), storage.Call{}, append(txs, late)...); err != nil {
		t.Fatal(err)
	}
	claim := func(seq uint64, most int) storage.Claimed {
		c, err := s.Claim(t.Context(), asking(callOf(seq), most, queues...))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	scheduled := func() int64 {
		stats, err := s.Stats(t.Context(), last)
		if err != nil {
			t.Fatal(err)
		}
		return stats[0].Scheduled
	}
	claim(1, 1) // the first claim of a runner maintains all
	server.SetTime(start.Add(time.Second))
	s.upkeep.last["r"] = time.Now().Add(time.Hour)
	if c := claim(2, 1); len(c.Tasks) != 1 || !c.More || c.NextDue.Sub(c.Now) > upkeepEvery || scheduled() != 1 {
		t.Errorf("got %d tasks, more %v, due %v, with %d scheduled tasks", len(c.Tasks), c.More, c.NextDue.Sub(c.Now), scheduled())
	}
	s.upkeep.last["r"] = time.Now().Add(-upkeepEvery)
	if c := claim(3, 1); len(c.Tasks) != 1 || scheduled() != 0 {
		t.Errorf("got %d tasks, with %d scheduled tasks, want one and 0", len(c.Tasks), scheduled())
	}
	s.upkeep.last["r"] = time.Now().Add(time.Hour)
	if c := claim(4, 9); len(c.Tasks) != 2 {
		t.Errorf("a claim with room got %d tasks, want 2, of which one is in the last queue", len(c.Tasks))
	}
}
