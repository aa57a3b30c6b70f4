#!/usr/bin/env bash
# Makes sure that prometheus and promtool, which a test of metrics/prometheus starts, are in PATH
# or in bin/prometheus. If apt can download Debian's package, this extracts them from it. It does
# not install the package, so that no service starts. Otherwise it prints where to get them, and
# fails.
set -euo pipefail
cd "$(dirname "$0")/.."

have() { command -v "$1" >/dev/null 2>&1; }

if have prometheus && have promtool || [ -x bin/prometheus/promtool ]; then
  exit 0
fi
if ! have apt-get || ! have dpkg; then
  echo "make test needs prometheus and promtool in PATH: see https://prometheus.io/download" >&2
  exit 1
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fetch() { (cd "$work" && apt-get download prometheus); }
if ! fetch; then # the lists of packages may be missing
  root=()
  [ "$(id -u)" -eq 0 ] || root=(sudo -n)
  "${root[@]}" apt-get update
  fetch
fi
dpkg -x "$work"/prometheus_*.deb "$work/package"
mkdir -p bin/prometheus
mv "$work"/package/usr/bin/{prometheus,promtool} bin/prometheus
