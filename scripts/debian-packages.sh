# Read by the scripts `ensure-….sh`: they install a package of Debian where no other process installs one.

# Lets the scripts of all processes run one after the other: a program is there before its package is whole.
run_alone() {
    if [ "$(id -u)" = 0 ] && [ -z "${ELT_INSTALLS:-}" ] && command -v flock >/dev/null 2>&1; then
        exec env ELT_INSTALLS=1 flock "$(dirname "$0")" sh "$0" "$@"
    fi
}

# Whether packages can be installed unattended.
can_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1
}

# Installs the first package of several that this release has. It waits for others who use apt.
install_first() {
    apt-get -o DPkg::Lock::Timeout=600 update >&2 || true
    for package in "$@"; do
        DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y \
            --no-install-recommends "$package" >&2 && return 0
    done
    return 1
}
