#!/bin/sh
# Prints the path of a Chromium for the browser tests; installs one where that can be done unattended.
# Exits 1, with a message that names what to install, where there is none.
set -eu
. "$(dirname "$0")/debian-packages.sh"
run_alone "$@"

find_browser() {
    for name in "${CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable; do
        [ -n "$name" ] && command -v "$name" && return 0
    done
    mac="/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
    [ -x "$mac" ] && echo "$mac"
    return 0
}

browser=$(find_browser)
if [ -z "$browser" ] && can_install; then
    echo "No Chromium here: installing one with apt-get." >&2
    install_first chromium || true
    browser=$(find_browser)
fi
if [ -z "$browser" ]; then
    cat >&2 <<MESSAGE
The browser tests need Chromium, and none was found on PATH.
Install one and run this again:
  Debian, Ubuntu:  sudo apt-get install chromium
  Fedora:          sudo dnf install chromium
or set CHROMIUM to one that is there already; or leave those tests out: make test ARGS='-m "not browser and not slow"'
MESSAGE
    exit 1
fi
echo "$browser"
