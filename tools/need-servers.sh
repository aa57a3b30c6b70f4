#!/usr/bin/env bash
# Makes sure that the servers the tests start are installed: redis-server and
# redis-cli. Where apt can install them, it does; elsewhere this prints the one
# command that does and fails.
#
# A package may start a service of its own on the standard port. The tests never
# use a standard port: they start private servers and stop those alone.
set -euo pipefail

have() { command -v "$1" >/dev/null 2>&1; }

if have redis-server && have redis-cli; then
  exit 0
fi

want="redis-server and redis-cli"
case "$(uname -s)" in
  Darwin) hint="brew install redis" ;;
  FreeBSD) hint="pkg install redis" ;;
  Linux) hint="the package manager's command for redis, such as: dnf install redis" ;;
  *) hint="wsl --install -d Debian, and run make test inside it" ;;
esac

root=()
if have apt-get; then
  hint="sudo apt-get update && sudo apt-get install -y redis-server"
  if [ "$(id -u)" -ne 0 ]; then
    root=(sudo -n)
    if ! have sudo || ! sudo -n true 2>/dev/null; then
      echo "make test needs $want. Install them with: $hint" >&2
      exit 1
    fi
  fi
  "${root[@]}" apt-get update
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y redis-server
  exit 0
fi

echo "make test needs $want. Install them with: $hint" >&2
exit 1
