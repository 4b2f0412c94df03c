"""Celery's consumer without native delayed delivery.

On quorum queues Celery creates 28 delay queues for `eta` and `countdown`. We use neither: rows hold the time at which something
is due.
"""

from celery.worker.consumer import consumer


class Consumer(consumer.Consumer):  # type: ignore[misc]
    """The consumer of our workers."""

    class Blueprint(consumer.Consumer.Blueprint):  # type: ignore[misc]
        """The boot steps without delayed delivery."""

        default_steps = tuple(
            step for step in consumer.Consumer.Blueprint.default_steps if "delayed_delivery" not in str(step)
        )
