#!/bin/sh
# Prints the home of a Java that Spark can run on; installs one where that can be done unattended.
# Exits 1, with a message that names what to install, where there is none.
set -eu
. "$(dirname "$0")/debian-packages.sh"
run_alone "$@"

MINIMUM=17

# The home of a java executable, if it is new enough (nothing otherwise).
home_of() {
    [ -x "$1" ] || return 0
    "$1" -XshowSettings:properties -version 2>&1 | awk -v minimum="$MINIMUM" '
        $1 == "java.home" { sub(/^[^=]*= */, ""); home = $0 }
        $1 == "java.specification.version" { version = $3 }
        END { if (version + 0 >= minimum) print home }'
}

# Every place to look, best first; one path a line.
candidates() {
    if [ -n "${JAVA_HOME:-}" ]; then echo "$JAVA_HOME/bin/java"; fi
    command -v java || true
    if [ -x /usr/libexec/java_home ]; then
        home=$(/usr/libexec/java_home -v "$MINIMUM+" 2>/dev/null) && echo "$home/bin/java"
    fi
    ls -d /usr/lib/jvm/*/bin/java /opt/homebrew/opt/openjdk*/bin/java /opt/java/*/bin/java 2>/dev/null || true
}

find_home() {
    candidates | while read -r java; do
        home=$(home_of "$java")
        if [ -n "$home" ]; then
            echo "$home"
            break
        fi
    done
}

home=$(find_home)
if [ -z "$home" ] && can_install; then
    echo "No Java $MINIMUM or newer here: installing one with apt-get." >&2
    # Distributions carry different releases.
    install_first openjdk-17-jre-headless openjdk-21-jre-headless openjdk-25-jre-headless || true
    home=$(find_home)
fi
if [ -z "$home" ]; then
    cat >&2 <<MESSAGE
Spark needs Java $MINIMUM or newer, and none was found in JAVA_HOME, on PATH or in the usual places.
Install one and run this again:
  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless
  Fedora:          sudo dnf install java-21-openjdk-headless
  macOS:           brew install openjdk@17
or set JAVA_HOME to one that is there already.
MESSAGE
    exit 1
fi
echo "$home"
