package storage

import (
	"strconv"
	"strings"
)

// maxRunnerHost bounds the host in the id of a runner, in bytes.
const maxRunnerHost = 63

// NewRunnerID makes the id of a runner: "host:pid:" and ten random characters. A pending task and each
// attempt in the history keep the id, so that they name the host and the process of the runner long after
// it has gone. A character of host that no name may have becomes a '-', and only the end of a long host
// is kept. Without a host the whole id is random.
func NewRunnerID(host string, pid int) string {
	if len(host) > maxRunnerHost {
		host = host[len(host)-maxRunnerHost:]
	}
	host = strings.TrimLeft(strings.Map(func(r rune) rune {
		if r > 0x7f || r == ':' || nameByte[byte(r)] == 0 {
			return '-'
		}
		return r
	}, host), "-._")
	if host == "" || pid < 0 {
		return NewID()
	}
	random := random16()
	return host + ":" + strconv.Itoa(pid) + ":" + idEncoding.EncodeToString(random[:])[:10]
}

// RunnerHost returns the host and the process in a runner's id that [NewRunnerID] made, "" and 0 for any
// other id.
func RunnerHost(id string) (host string, pid int) {
	parts := strings.Split(id, ":")
	if len(parts) != 3 || parts[0] == "" {
		return "", 0
	}
	pid, err := strconv.Atoi(parts[1])
	if err != nil || pid < 0 {
		return "", 0
	}
	return parts[0], pid
}
