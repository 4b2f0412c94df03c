"""The samples and counts of one run."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RunSamples:
    """Samples are in seconds. Tokens count while the workload lasts, each prompt once."""

    seconds: float
    ttft: NDArray[np.float64]
    itl: NDArray[np.float64]
    prompt_tokens: int
    output_tokens: int
    wasted: int
    unserved: int
    evicted: int
    preempted: int
    faults: int
    yields: int
    plan: NDArray[np.float64]
