#!/bin/sh
# Prints the folder of MariaDB's server program (mariadbd) for the tests of the source mysql; installs it where
# that can be done unattended.
# Exits 1, with a message that names what to install, where there is none.
set -eu
. "$(dirname "$0")/debian-packages.sh"
run_alone "$@"

# Every place to look, best first; one path a line.
candidates() {
    if [ -n "${MARIADB_BIN:-}" ]; then echo "$MARIADB_BIN"; fi
    if command -v mariadbd >/dev/null 2>&1; then dirname "$(command -v mariadbd)"; fi
    ls -d /usr/sbin /usr/libexec /opt/homebrew/opt/mariadb*/bin 2>/dev/null
}

find_programs() {
    candidates | while read -r folder; do
        if [ -x "$folder/mariadbd" ]; then
            echo "$folder"
            break
        fi
    done
}

programs=$(find_programs)
if [ -z "$programs" ] && can_install; then
    echo "No MariaDB here: installing it with apt-get." >&2
    install_first mariadb-server || true
    programs=$(find_programs)
fi
if [ -z "$programs" ]; then
    cat >&2 <<MESSAGE
The tests of the source mysql need MariaDB's server, and none was found in the usual places.
Install one and run this again:
  Debian, Ubuntu:  sudo apt-get install mariadb-server
  Fedora:          sudo dnf install mariadb-server
  macOS:           brew install mariadb
or set MARIADB_BIN to the folder of mariadbd; or leave those tests out: make test ARGS='-m "not external and not long"'
MESSAGE
    exit 1
fi
echo "$programs"
