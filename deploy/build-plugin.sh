#!/usr/bin/env bash
# Build the wheel slackwater-vllm from workers/engine into a folder (default: dist), and print its path. Installs nothing.
#   PYTHON  interpreter with pip and setuptools (default: .venv/bin/python)
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:-dist}")
python=${PYTHON:-.venv/bin/python}

# From a copy: setuptools leaves its own files beside the sources.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r LICENSE workers/engine/pyproject.toml workers/engine/*.py workers/engine/door "$copy"
"$python" -m pip --disable-pip-version-check --quiet wheel "$copy" --no-deps --no-build-isolation --wheel-dir "$copy/wheel"
mkdir -p "$out"
wheel=$(basename "$copy"/wheel/*.whl)
mv "$copy/wheel/$wheel" "$out"
realpath --relative-base=. "$out/$wheel"
