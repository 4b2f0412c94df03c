#!/usr/bin/env bash
# Build an environment for each engine's bridge below examples/engines/.venv/ (ignored by git). It skips those that exist.
#   examples/engines/setup.sh [ENGINE …]   (default: each file of requirements/)
set -uo pipefail
cd "$(dirname "$0")"
code=0
for engine in ${*:-$(basename -s .txt requirements/*.txt)}; do
    env=.venv/$engine
    [ ! -e "$env/built" ] || continue
    echo "engines: $engine" >&2
    rm -rf "$env"
    { "${PYTHON:-python3}" -m venv "$env" &&
        "$env/bin/python" -m pip --disable-pip-version-check install --quiet -r "requirements/$engine.txt" &&
        touch "$env/built"; } || { echo "engines: $engine could not be installed" >&2; code=1; }
done
exit $code
