"""A Temporal workflow whose activity is a batch. No worker waits for it: the webhook completes the activity by the ids in the
batch's metadata.

    temporal server start-dev &
    SLACKWATER_KEY=sk_sw_… python temporal_bridge.py "First prompt" "Second prompt"
"""

import asyncio
import os
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    from openai.types import Batch
    from slackwater_batches import ENDED, answers, output, slackwater, submit, told

QUEUE = "slackwater"
IDS = ("workflow_id", "workflow_run_id", "activity_id")


@activity.defn
def run_batch(prompts: list[str]) -> str:
    """Submit the prompts, and leave; the id of the file with the answers comes from `complete`."""
    info = activity.info()
    ids = {name: str(getattr(info, name)) for name in IDS}
    batch = submit(slackwater(), prompts, key="/".join(ids.values()), metadata=ids)
    if batch.status not in ENDED:  # it has ended where this is a second attempt
        activity.raise_complete_async()
    return output(batch)


@workflow.defn
class Answers:
    """A workflow of one step."""

    @workflow.run
    async def run(self, prompts: list[str]) -> str:
        """The id of the file with the answers."""
        return await workflow.execute_activity(run_batch, prompts, start_to_close_timeout=timedelta(hours=25))


async def complete(temporal: Client, batch: Batch) -> None:
    """Complete the activity that waits for this batch, or let it fail."""
    workflow_id, run_id, activity_id = ((batch.metadata or {}).get(name) for name in IDS)
    if not workflow_id or not activity_id:
        return  # another's batch
    handle = temporal.get_async_activity_handle(workflow_id=workflow_id, run_id=run_id, activity_id=activity_id)
    try:
        await handle.complete(output(batch))
    except RuntimeError as error:
        await handle.fail(error)
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:  # it has been completed: a webhook may come twice
            raise


async def main(prompts: list[str]) -> None:
    """Run the worker, the receiver and one workflow."""
    temporal = await Client.connect(os.environ.get("TEMPORAL_ADDRESS", "localhost:7233"))
    loop, client = asyncio.get_running_loop(), slackwater()

    def ended(batch: Batch, _event: str) -> None:
        asyncio.run_coroutine_threadsafe(complete(temporal, batch), loop).result(10)

    with ThreadPoolExecutor() as threads:
        worker = Worker(
            temporal, task_queue=QUEUE, workflows=[Answers], activities=[run_batch], activity_executor=threads
        )
        async with worker:
            with told(client, ended):
                file_id = await temporal.execute_workflow(Answers.run, prompts, id=uuid.uuid4().hex, task_queue=QUEUE)
    for n, answer in answers(client, file_id).items():
        print(f"{n}: {answer}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
