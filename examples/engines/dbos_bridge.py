"""A DBOS workflow that submits a batch and sleeps until its webhook sends a message. A workflow that was cut off goes on where it
was: its steps are not run again, and a message that came meanwhile waits for it.

    SLACKWATER_KEY=sk_sw_… python dbos_bridge.py "First prompt" "Second prompt"
"""

import os
import sys

from dbos import DBOS
from openai.types import Batch
from slackwater_batches import ENDED, answers, output, slackwater, submit, told

TOPIC = "ended"
LOOK_SECONDS = 600.0  # without a message, look whether one was lost


@DBOS.step()
def submit_batch(prompts: list[str]) -> str:
    """The id of the batch."""
    workflow_id = str(DBOS.workflow_id)
    return submit(slackwater(), prompts, key=workflow_id, metadata={"workflow_id": workflow_id}).id


@DBOS.step()
def output_of(batch_id: str) -> str | None:
    """The id of the file with the answers; None: the batch has not ended."""
    batch = slackwater().batches.retrieve(batch_id)
    return output(batch) if batch.status in ENDED else None


@DBOS.workflow()
def run_batch(prompts: list[str]) -> str:
    """The id of the file with the answers."""
    batch_id = submit_batch(prompts)
    while True:
        DBOS.recv(TOPIC, timeout_seconds=LOOK_SECONDS)
        if file_id := output_of(batch_id):
            return file_id


def ended(batch: Batch, event_id: str) -> None:
    """Wake the workflow that waits for this batch."""
    if workflow_id := (batch.metadata or {}).get("workflow_id"):
        DBOS.send(workflow_id, batch.id, TOPIC, idempotency_key=event_id)


def main(prompts: list[str]) -> None:
    """Run the receiver and one workflow."""
    DBOS(config={"name": "slackwater", "system_database_url": os.environ.get("DBOS_DATABASE", "sqlite:///dbos.sqlite")})
    DBOS.launch()
    client = slackwater()
    with told(client, ended):
        file_id = run_batch(prompts)
    for n, answer in answers(client, file_id).items():
        print(f"{n}: {answer}")
    DBOS.destroy()


if __name__ == "__main__":
    main(sys.argv[1:])
