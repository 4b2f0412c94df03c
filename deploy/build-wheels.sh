#!/usr/bin/env bash
# Build the wheels of a commit, slackwater and slackwater-vllm, into a folder. Installs nothing.
#   deploy/build-wheels.sh [FOLDER [COMMIT]]    (default: dist, HEAD)
# What is not committed is not in them. A tag vX.Y.Z must be on a commit whose version is X.Y.Z.
#   PYTHON  interpreter with pip and setuptools (default: .venv/bin/python)
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-dist}")
commit=${2:-HEAD}
python=$(realpath -s "${PYTHON:-.venv/bin/python}")

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git archive "$commit" | tar -x -C "$copy"
version=$(sed -n 's/^__version__ = "\([^"]*\)".*/\1/p' "$copy/workers/engine/__init__.py")
if [[ $commit == v[0-9]* && $commit != "v$version" ]]; then
    echo "build-wheels: the commit of $commit has the version $version (workers/engine/__init__.py)" >&2
    exit 1
fi
"$python" -m pip --disable-pip-version-check --quiet wheel "$copy" --no-deps --no-build-isolation --wheel-dir "$out"
PYTHON=$python "$copy/deploy/build-plugin.sh" "$out" >/dev/null
ls "$out"/slackwater-"$version"-*.whl "$out"/slackwater_vllm-"$version"-*.whl
