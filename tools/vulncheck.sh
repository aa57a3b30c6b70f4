#!/usr/bin/env bash
# Checks the code that modules call for known vulnerabilities.
# usage: vulncheck.sh govulncheck [folder of a module]...
#
# Without folders it checks the module of the working directory. It fails if it finds a
# vulnerability. If the database of vulnerabilities cannot be reached, for example without a
# network, nothing can be checked: it says so and does not fail. If that is so for the first
# module, it does not load the others.
set -uo pipefail

program=$1
shift
reached=
for module in "${@:-.}"; do
  if out=$(cd "$module" && "$program" ./... 2>&1); then
    echo "govulncheck: $module: no known vulnerability is called"
    reached=yes
    continue
  else
    code=$?
  fi
  echo "$out"
  # Code 3 means that a vulnerability was found. Of all other failures, only this one comes
  # from the network.
  if [ "$code" -eq 3 ] || ! grep -q '^govulncheck: fetching vulnerabilities: ' <<<"$out"; then
    exit "$code"
  fi
  echo "govulncheck: $module: the database of vulnerabilities cannot be reached: NOTHING WAS CHECKED"
  [ "$reached" ] || exit 0
done
