#!/usr/bin/env bash
# Counts the functions of midge on the way of an enqueue, and of a task's whole life with the end of its runner, in
# memory and on Redis (miniredis). It counts functions of Go that were reached, by coverage.
# usage: way.sh [-v]    with -v it lists the functions
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
packages=$(go list -deps ./internal/way | grep '^github.com/midgehq/midge' | paste -sd,)
go build -cover -covermode=atomic -coverpkg="$packages" -o "$dir/way" ./internal/way
for storage in memory redis; do
  GOCOVERDIR=$dir "$dir/way" "$storage" "$dir/$storage"
  for way in enqueue life; do
    reached=$(go tool covdata func -i="$dir/$storage/$way" | grep -v -e '^total' -e /internal/way/ -e '[[:space:]]0\.0%$')
    echo "$storage $way: $(wc -l <<<"$reached") functions"
    if [ "${1-}" = -v ]; then echo "$reached"; fi
  done
done
