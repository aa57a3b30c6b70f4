#!/usr/bin/env bash
# Runs the tests of which make test runs a tenth or less, in full and with their figures: one part,
# or all parts one after the other, because some measure time.
#
#   tools/test-long.sh [PART]
#
# The function of a part has the part's name, and the comment above it gives the time on two cores.
# The tests of the random sequences and of the storm also run with the tag midge_general, with
# which storages take no fast paths.
set -uo pipefail

parts="postgres contract crash torn stale schedules limits partitions partitions-rated sqlite
sequences-race sequences-files sequences-1 sequences-2 sequences-3
sequences-files-general sequences-1-general sequences-2-general sequences-3-general
storm storm-sqlite storm-general storm-sqlite-general"
parts=${parts//$'\n'/ }

# long FOLDER ARGUMENTS... runs go test in a module. -v prints the figures.
long() {
  (cd "$1" && MIDGE_TEST_SERVERS=1 ${GO:-go} test -count=1 -timeout 60m -v -tags "$tags" "${@:2}")
}

faults() { long internal/faulttest -run "$1" .; }
general() { tags=long,midge_general "$@"; }
sequences() { long internal/difftest -run "$1" .; }

# The failures of PostgreSQL: dead rows, lost connections, upgrades. 20 minutes
postgres() { long . ./internal/pgfault; }

# The contract without the storages' short ways, and behind PgBouncer. 10 minutes
contract() {
  long . -run 'TestContract|TestPooledTransactions' ./storage/redis ./storage/postgres ./internal/pgfault
}

# Crashes of PostgreSQL, standbys that take over, and processes that write orders. 10 minutes
crash() { faults 'TestACrashedServerLosesNothing|TestAStandbyTakesOver|TestEachOrderIsSoldOnce'; }

# Append-only files of Redis that are torn within a step. 2 minutes
torn() { long . -run TestATornAppendOnlyFile ./storage/redis; }

# Runners that are frozen, and a queue of a million tasks that is cancelled. 15 minutes
stale() { faults 'TestAResumedRunnerStartsNothingStale|TestCancelAllLeavesOthersAlone'; }

# 10,000 and 100,000 schedules of the same moments, and 100,000 that are spread. 45 minutes
schedules() { faults 'TestManySchedulesTickTogether|TestKeptSchedulesTickOnTime'; }

# Limits of queues and of partitions under kills and freezes, and a rate of a minute. 40 minutes
limits() { faults 'TestALimitOutlivesKills|TestALimitOfPartitionsOutlivesKills|TestARateOutlivesKills'; }

# A million partitions that come and go on each storage, and a million tasks beside one of a small tenant. 40 minutes
partitions() {
  gone unlimited && faults TestASmallTenantIsClaimedNext
}

# The same million of partitions while a rate counts their starts. 30 minutes
partitions-rated() { gone rated; }

gone() {
  local tests="TestNothingIsLeftOfPartitions|TestPartitionsLeaveNothingBehind|TestNoRowIsLeftOfPartitions"
  long . -run "($tests)/$1" ./storage/memory ./storage/redis ./storage/postgres &&
    long storage/sqlite/modernc -run "($tests)/$1" .
}

# Kills and power cuts of SQLite, and files that are taken from processes. 15 minutes
sqlite() { long storage/sqlite/modernc -run 'TestKilled|TestAPowerCut|TestAFile(StaysSmall|ThatIsTaken)' .; }

# The sequences that make test runs without the race detector, under it. 35 minutes
sequences-race() {
  local tags='' lib='-gcflags=modernc.org/libc/...=-race=false -gcflags=modernc.org/sqlite/lib=-race=false'
  local lua='-gcflags=github.com/yuin/gopher-lua/...=-race=false'
  # shellcheck disable=SC2086 # several flags
  long internal/difftest -race $lib $lua .
  long . -race $lua ./access ./internal/ledger ./dashboard ./storage/storagetest ./storage/redis ./storage/postgres
  # shellcheck disable=SC2086
  long storage/sqlite/modernc -race $lib .
}

# Random sequences on SQLite and miniredis. 25 minutes
sequences-files() { sequences 'TestSQLite|TestMiniredis'; }
sequences-files-general() { general sequences-files; }

# Random sequences on Redis, a Cluster and PostgreSQL, by the last digit of the seed. 25 minutes
sequences-1() { sequences 'TestServers/[0-3]$'; }
sequences-2() { sequences 'TestServers/[4-6]$'; }
sequences-3() { sequences 'TestServers/[7-9]$'; }
sequences-1-general() { general sequences-1; }
sequences-2-general() { general sequences-2; }
sequences-3-general() { general sequences-3; }

# All faults at once, on Redis, a Cluster and PostgreSQL side by side, and on SQLite. 25 minutes each
storm() { faults 'TestAStorm/^(redis|cluster|postgres)$'; }
storm-sqlite() { faults 'TestAStorm/^sqlite$'; }
storm-general() { general storm; }
storm-sqlite-general() { general storm-sqlite; }

tags=long
chosen=${1:-$parts}
if [[ $# -gt 0 && " $parts " != *" $1 "* ]]; then
  echo "test-long: there is no part $1; the parts are: $parts" >&2
  exit 2
fi
cd "$(dirname "$0")/.." || exit
status=0 times=
for part in $chosen; do
  SECONDS=0 outcome=passed
  "$part" || outcome=FAILED status=1
  line=$(printf '%-23s %s in %d:%02d minutes' "$part" $outcome $((SECONDS / 60)) $((SECONDS % 60)))
  echo "test-long: $line"
  times+=$'\n'$line
done
echo "$times"
exit $status
