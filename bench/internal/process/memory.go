package process

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// PeakMemory returns the most memory that this process has ever used, in bytes.
func PeakMemory() (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read the peak of memory, which needs Linux: %w", err)
	}
	return peakOf(string(text))
}

// peakOf returns VmHWM of a status file of /proc, in bytes.
func peakOf(status string) (int64, error) {
	for line := range strings.Lines(status) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, fmt.Errorf("no VmHWM in %q", status)
}
