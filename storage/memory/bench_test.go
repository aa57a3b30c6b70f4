package memory

import (
	"fmt"
	"sync"
	"testing"
)

// The figure that counts is tasks/s: one operation of a benchmark is one task.

func BenchmarkInsert(b *testing.B) {
	for _, size := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			h := newHarness(b)
			b.ReportAllocs()
			h.insert(b.N, size)
			report(b)
		})
	}
}

func BenchmarkClaimAndSettle(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			h := newHarness(b)
			h.insert(b.N, 1000)
			b.ReportAllocs()
			b.ResetTimer()
			h.drain(size)
			report(b)
		})
	}
}

// BenchmarkDrain drains a queue with many claimants at once.
func BenchmarkDrain(b *testing.B) {
	for _, claimants := range []int{2, 100} {
		b.Run(fmt.Sprintf("claimants=%d", claimants), func(b *testing.B) {
			h := newHarness(b)
			h.insert(b.N, 1000)
			b.ReportAllocs()
			b.ResetTimer()
			var all sync.WaitGroup
			for range claimants {
				all.Go(func() { h.drain(100) })
			}
			all.Wait()
			report(b)
		})
	}
}

func report(b *testing.B) {
	b.Helper()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}
