#!/bin/sh
# Prints the folder of PostgreSQL's programs (initdb, postgres) for the tests of Singer taps; installs them
# where that can be done unattended.
# Exits 1, with a message that names what to install, where there are none.
set -eu
. "$(dirname "$0")/debian-packages.sh"
run_alone "$@"

# Every place to look, best first; one path a line.
candidates() {
    if [ -n "${POSTGRES_BIN:-}" ]; then echo "$POSTGRES_BIN"; fi
    if command -v pg_config >/dev/null 2>&1; then pg_config --bindir; fi
    ls -d /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql*/bin 2>/dev/null | sort -rV
}

find_programs() {
    candidates | while read -r folder; do
        if [ -x "$folder/initdb" ] && [ -x "$folder/postgres" ]; then
            echo "$folder"
            break
        fi
    done
}

programs=$(find_programs)
if [ -z "$programs" ] && can_install; then
    echo "No PostgreSQL here: installing one with apt-get." >&2
    # The package would make a cluster of its own, and start it.
    mkdir -p /etc/postgresql-common
    [ -e /etc/postgresql-common/createcluster.conf ] ||
        echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
    install_first postgresql || true
    programs=$(find_programs)
fi
if [ -z "$programs" ]; then
    cat >&2 <<MESSAGE
The tests of Singer taps need PostgreSQL's server, and none was found in the usual places.
Install one and run this again:
  Debian, Ubuntu:  sudo apt-get install postgresql
  Fedora:          sudo dnf install postgresql-server
  macOS:           brew install postgresql
or set POSTGRES_BIN to the folder of its programs; or leave those tests out: make test ARGS='-m "not postgres and not long"'
MESSAGE
    exit 1
fi
echo "$programs"
