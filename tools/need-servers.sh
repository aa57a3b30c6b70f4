#!/usr/bin/env bash
# Makes sure that the programs which the tests start are installed: redis-server, redis-cli,
# postgres and initdb of PostgreSQL, pgbouncer, tmux (for the test of midge top), zsh, fish and
# bash-completion (for the tests of its completion), a chromium (for the dashboard), and on Linux
# strace (which records what SQLite writes). If apt can install them, this does. Otherwise it
# prints the one command that does, and fails.
#
# A package may start a service of its own on the standard port. The tests never
# use a standard port: they start private servers and stop only those.
set -euo pipefail

have() { command -v "$1" >/dev/null 2>&1; }

# Debian installs the programs of PostgreSQL outside PATH.
have_postgres() {
  have postgres && have initdb || compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null
}

have_bouncer() { have pgbouncer || [ -x /usr/sbin/pgbouncer ]; }

have_browser() {
  have chromium || have chromium-browser || have google-chrome || have google-chrome-stable ||
    [ -x "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" ]
}

# Bash completion needs the functions of a package, which is not a command in PATH.
have_shells() {
  have zsh && have fish && compgen -G "/usr/share/bash-completion/bash_completion" >/dev/null ||
    [ "$(uname -s)" != Linux ]
}

have_strace() { have strace || [ "$(uname -s)" != Linux ]; }

# Pages take 40 % less processor time in the headless shell, which Debian has and Ubuntu has not. Any
# chromium will do where it cannot be installed.
prefers_shell() {
  ! have chromium-headless-shell && apt-cache show chromium-headless-shell >/dev/null 2>&1 &&
    { [ "$(id -u)" -eq 0 ] || { have sudo && sudo -n true 2>/dev/null; }; }
}

if have redis-server && have redis-cli && have_postgres && have_bouncer && have tmux && have_shells && have_strace && have_browser &&
  ! prefers_shell; then
  exit 0
fi

want="redis-server, redis-cli, postgres, initdb, pgbouncer, tmux, chromium or chrome and, on Linux, zsh, fish, bash-completion and strace"
case "$(uname -s)" in
  Darwin) hint="brew install redis postgresql pgbouncer tmux && brew install --cask google-chrome" ;;
  FreeBSD) hint="pkg install redis postgresql16-server pgbouncer tmux chromium" ;;
  Linux) hint="the package manager's command for them, such as: dnf install redis postgresql-server pgbouncer strace tmux zsh fish bash-completion chromium" ;;
  *) hint="wsl --install -d Debian, and run make test inside it" ;;
esac

root=()
if have apt-get; then
  hint="sudo apt-get update && sudo apt-get install -y redis-server postgresql pgbouncer strace tmux zsh fish bash-completion chromium"
  if [ "$(id -u)" -ne 0 ]; then
    root=(sudo -n)
    if ! have sudo || ! sudo -n true 2>/dev/null; then
      echo "make test needs $want. Install them with: $hint" >&2
      exit 1
    fi
  fi
  "${root[@]}" apt-get update
  browser=(chromium)
  if prefers_shell; then browser+=(chromium-headless-shell); fi
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y redis-server postgresql pgbouncer strace tmux zsh fish bash-completion "${browser[@]}"
  exit 0
fi

echo "make test needs $want. Install them with: $hint" >&2
exit 1
