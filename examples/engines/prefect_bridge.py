"""A Prefect flow that submits a batch and polls it. A flow that is run again after a crash finds its batch by its key.

SLACKWATER_KEY=sk_sw_… python prefect_bridge.py "First prompt" "Second prompt"
"""

import os
import sys
import time

from prefect import flow, task
from prefect.runtime import flow_run
from slackwater_batches import ENDED, answers, output, slackwater, submit

POLL_SECONDS = float(os.environ.get("POLL_SECONDS", "10"))


@task(retries=3, retry_delay_seconds=5)
def submit_batch(prompts: list[str], key: str) -> str:
    """The id of the batch."""
    return submit(slackwater(), prompts, key=key).id


@task(retries=100, retry_delay_seconds=60)
def wait_for(batch_id: str) -> str:
    """The id of the file with the answers, when the batch has ended. The retries are for an API that is away."""
    client = slackwater()
    while (batch := client.batches.retrieve(batch_id)).status not in ENDED:
        time.sleep(POLL_SECONDS)
    return output(batch)


@flow
def run_batch(prompts: list[str]) -> str:
    """The id of the file with the answers."""
    return wait_for(submit_batch(prompts, key=str(flow_run.get_id())))


def main(prompts: list[str]) -> None:
    """Run one flow."""
    file_id = run_batch(prompts)
    for n, answer in answers(slackwater(), file_id).items():
        print(f"{n}: {answer}")


if __name__ == "__main__":
    main(sys.argv[1:])
