#!/bin/sh
# Prints the path of pgbouncer for the tests of the source postgres; installs it where that can be done
# unattended.
# Exits 1, with a message that names what to install, where there is none.
set -eu
. "$(dirname "$0")/debian-packages.sh"
run_alone "$@"

find_program() {
    PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v pgbouncer || true
}

program=$(find_program)
if [ -z "$program" ] && can_install; then
    echo "No pgbouncer here: installing it with apt-get." >&2
    # RUNLEVEL=1: the package starts no pool of its own.
    export RUNLEVEL=1
    install_first pgbouncer || true
    program=$(find_program)
fi
if [ -z "$program" ]; then
    cat >&2 <<MESSAGE
A test of the source postgres needs pgbouncer, and none was found in the usual places.
Install it and run this again:
  Debian, Ubuntu:  sudo apt-get install pgbouncer
  Fedora:          sudo dnf install pgbouncer
  macOS:           brew install pgbouncer
or leave those tests out: make test ARGS='-m "not external and not long"'
MESSAGE
    exit 1
fi
echo "$program"
