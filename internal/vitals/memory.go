package vitals

import (
	"bytes"
	"os"
	"runtime/metrics"
	"strconv"
)

// memory returns the resident memory of the process in bytes, from Linux. On other systems it
// returns the memory that the Go runtime holds.
func memory() int64 {
	if b, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := bytes.Fields(b); len(fields) > 1 {
			if pages, err := strconv.ParseInt(string(fields[1]), 10, 64); err == nil {
				return pages * int64(os.Getpagesize())
			}
		}
	}
	const all, released = "/memory/classes/total:bytes", "/memory/classes/heap/released:bytes"
	samples := []metrics.Sample{{Name: all}, {Name: released}}
	metrics.Read(samples)
	if samples[0].Value.Kind() != metrics.KindUint64 || samples[1].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return int64(samples[0].Value.Uint64() - samples[1].Value.Uint64())
}
