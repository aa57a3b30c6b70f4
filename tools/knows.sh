#!/usr/bin/env bash
# Lists the source files, without tests, that know one of some words, and their number. It shows how far a rule or a
# state has spread.
# usage: knows.sh WORD...    for example: knows.sh declined
set -euo pipefail
cd "$(dirname "$0")/.."

words=$(printf '%s|' "$@")
git ls-files '*.go' '*.lua' '*.sql' '*.html' '*.js' '*.css' |
  grep -v -e '_test\.go$' -e /testdata/ |
  xargs grep -liwE "${words%|}" | tee /dev/stderr | wc -l
