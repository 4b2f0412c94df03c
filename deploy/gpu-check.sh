#!/usr/bin/env bash
# Measure Slackwater on this machine's GPU in one short run: callers beside batch work on one vLLM with an 8B model.
#   deploy/gpu-check.sh [--kit PATH]… [options of `python -m benchmarks.colocation gpu`]
#   deploy/gpu-check.sh --minutes 9                 results are in gpu-check/, with tables after each piece
#   deploy/gpu-check.sh --minutes 9 --resume        go on where a run was cut
#   deploy/gpu-check.sh --size small                the same script on a CPU, in some minutes
# It uses .venv (`make install`). For a host without network, deploy/gpu_kit.py makes archives; --kit names one, or a folder of
# them. They are unpacked into GPU_KIT once, whichever is given at a time; the run begins when all are there. Then nothing is
# fetched or installed: PYTHON needs only what the list of the host says (deploy/gpu-host.txt), first of all PyTorch.
#   PYTHON   interpreter that runs the kit (default: python3)
#   GPU_KIT  folder for the unpacked kit, outside the checkout (default: /tmp/slackwater-gpu-kit)
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
folder=${GPU_KIT:-/tmp/slackwater-gpu-kit}
kit=()
options=()
while [ $# -gt 0 ]; do
    case $1 in
    --kit) kit+=("$2"); shift 2 ;;
    --kit=*) kit+=("${1#*=}"); shift ;;
    *) options+=("$1"); shift ;;
    esac
done

say() { echo "gpu-check: $*" >&2; }

if [ ${#kit[@]} -gt 0 ]; then
    status=0
    "$python" deploy/gpu_kit.py unpack --to "$folder" "${kit[@]}" || status=$?
    [ "$status" -eq 0 ] || [ "$status" -eq 3 ] || exit "$status"
    export PYTHONPATH="$PWD:$folder/site${PYTHONPATH:+:$PYTHONPATH}"
    "$python" deploy/gpu_kit.py check --to "$folder"
    [ "$status" -eq 0 ] || { say "waiting for the other archives; ${SECONDS} s"; exit 0; }
else
    python=.venv/bin/python
    [ -x "$python" ] || { say "no .venv: run \`make install\`, or give --kit PATH"; exit 1; }
fi
exec "$python" -m benchmarks.colocation gpu --json --spent "$SECONDS" "${options[@]}"
