#!/usr/bin/env bash
# Get the tools that tests use and pip has not, below .tools/ (ignored by git). Instant when they are there. Only Chromium needs root.
#   deploy/install-tools.sh [TOOL …]   TOOL: one of the list below (default: all)
# A tool that cannot be had here is named, and the exit code is 1: its tests are then reported as skipped, under CI=true as errors.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/.tools/bin
tools=(promtool chromium)

say() { echo "tools: $*" >&2; }

# Unpack one Debian package into $1.
unpack() {
    local folder=$1 package=$2
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 1
    (cd "$folder" && { apt-get -qq -o APT::Sandbox::User=root download "$package" ||
        { [ "$(id -u)" = 0 ] && apt-get -qq update && apt-get -qq -o APT::Sandbox::User=root download "$package"; }; } &&
        dpkg -x "$package"_*.deb unpacked) >/dev/null 2>&1
}

# of Prometheus: it checks metrics, configuration and rules
get_promtool() {
    [ ! -x "$bin/promtool" ] && ! type -P promtool >/dev/null || return 0
    local folder code
    folder=$(mktemp -d)
    unpack "$folder" prometheus && mkdir -p "$bin" && mv "$folder/unpacked/usr/bin/promtool" "$bin/"
    code=$?
    rm -rf "$folder"
    return $code
}

# the browser that tests of the console drive, and the font of their pictures
get_chromium() {
    ! type -P chromium >/dev/null || return 0
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium fonts-inter; } >/dev/null 2>&1
}

[ $# -gt 0 ] || set -- "${tools[@]}"
code=0
for tool in "$@"; do
    if [[ " ${tools[*]} " != *" $tool "* ]]; then
        say "no such tool: $tool. There are: ${tools[*]}"
        code=2
    elif ! "get_$tool"; then
        say "$tool cannot be had here (apt-get takes it from a Debian package): its tests are skipped"
        code=1
    fi
done
exit $code
