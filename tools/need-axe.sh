#!/usr/bin/env bash
# Makes sure that axe-core is in the user's cache, in the version that a test of the dashboard
# names. The test checks its checksum, and uses its rules of accessibility to check the pages. npm
# fetches it without running any of it. npm itself is installed from Debian's packages if it is
# missing.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^const axeVersion = "\(.*\)"$/\1/p' dashboard/browser/axe_test.go)
if [ "$(uname -s)" = Darwin ]; then
  cache="$HOME/Library/Caches"
else
  cache="${XDG_CACHE_HOME:-$HOME/.cache}"
fi
file="$cache/midge/axe-core-$version.js"
if [ -f "$file" ]; then
  exit 0
fi
if ! command -v npm >/dev/null 2>&1; then
  if ! command -v apt-get >/dev/null 2>&1; then
    echo "make test needs npm, which fetches axe-core" >&2
    exit 1
  fi
  root=()
  [ "$(id -u)" -eq 0 ] || root=(sudo -n)
  "${root[@]}" apt-get update
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends npm
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && npm pack --silent --ignore-scripts "axe-core@$version" >/dev/null && tar -xzf "axe-core-$version.tgz")
mkdir -p "$cache/midge"
mv "$work/package/axe.min.js" "$file.$$"
mv "$file.$$" "$file"
