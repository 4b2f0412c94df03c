#!/usr/bin/env bash
# Get the tools that tests use and pip has not, below .tools/ (ignored by git). Instant when they are there. Only Chromium needs root.
#   deploy/install-tools.sh [TOOL …]   TOOL: one of the list below (default: all)
# A tool that cannot be had here is named, and the exit code is 1: its tests are then reported as skipped, under CI=true as errors.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/.tools/bin
tools=(promtool chromium pgbouncer bwrap)

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

# bubblewrap: the sandbox of examples/code_runner.py
get_bwrap() {
    [ ! -x "$bin/bwrap" ] && ! type -P bwrap >/dev/null || return 0
    local folder code
    folder=$(mktemp -d)
    unpack "$folder" bubblewrap && mkdir -p "$bin" && mv "$folder/unpacked/usr/bin/bwrap" "$bin/"
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

# the connection pooler; older ones than 1.22 cannot pass on prepared statements, and Debian 12 has one. So its source is taken from
# the newest stable Debian, by the archive that this machine uses, and compiled
get_pgbouncer() {
    [ ! -x "$bin/pgbouncer" ] && ! enough_pgbouncer || return 0
    local folder code
    folder=$(mktemp -d)
    build_pgbouncer "$folder" >/dev/null 2>&1 && mkdir -p "$bin" && mv "$folder/built" "$bin/pgbouncer"
    code=$?
    rm -rf "$folder"
    return $code
}

enough_pgbouncer() {
    local found
    found=$(pgbouncer --version 2>/dev/null | sed -n 's/^PgBouncer //p') || return 1
    [ -n "$found" ] && [ "$(printf '%s\n' 1.22 "$found" | sort -V | head -1)" = 1.22 ]
}

build_pgbouncer() {
    local folder=$1 archive event
    command -v apt-get && command -v cc && command -v make && unpack "$folder" libevent-dev || return 1
    event=$(find "$folder/unpacked" -name libevent_core.a | head -1)
    archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' | head -1)
    [ -n "$archive" ] && [ -n "$event" ] || return 1
    mkdir -p "$folder/lists/partial" "$folder/source"
    echo "deb-src $archive stable main" >"$folder/sources.list"
    (
        cd "$folder/source" &&
            options=(-o APT::Sandbox::User=root -o "Dir::Etc::SourceList=$folder/sources.list" -o Dir::Etc::SourceParts=-
                -o "Dir::State::Lists=$folder/lists" -o "Dir::Cache=$folder") &&
            apt-get -qq "${options[@]}" update && apt-get -qq "${options[@]}" source --download-only pgbouncer &&
            tar xf pgbouncer_*.orig.tar.gz --strip-components=1 &&
            LIBEVENT_CFLAGS="-I$folder/unpacked/usr/include -I$(dirname "$event" | sed 's|/lib/|/include/|')" LIBEVENT_LIBS=$event \
                ./configure --without-openssl --without-cares --disable-evdns &&
            make -j2 pgbouncer
    ) && mv "$folder/source/pgbouncer" "$folder/built"
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
