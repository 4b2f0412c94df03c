"""As `engine`, on a GPU, with larger sizes and rates. --model names a model of the catalogue.

Without a GPU, or without a vLLM for it, `not_run` in the result gives the reason. `SLACKWATER_MODELS_FILE` names the catalogue.
"""

import argparse
from typing import Any

from app.headroom.gpu import GpuProbe
from app.settings import visible_gpus
from benchmarks.colocation import track_engine

SIZES = {"rate": 8.0, "words": 400, "tokens": 120, "batch_words": 700, "batch_tokens": 256}


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of this track."""
    track_engine.add_arguments(command)
    command.set_defaults(**SIZES)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Figures and verdict, or the reason for which nothing was run."""
    if obstacle := _obstacle():
        return {"not_run": obstacle, "arms": {}}
    return track_engine.run(options)


def _obstacle() -> str | None:
    gpus = GpuProbe(visible_gpus()).read()
    if not gpus:
        return "NVML finds no GPU on this machine"
    from vllm.platforms import current_platform

    if not current_platform.is_cuda_alike():
        return f"{gpus[0].name} was found, but the installed vLLM is not built for it"
    return None
