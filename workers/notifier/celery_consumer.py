"""Celery's consumer without native delayed delivery.

On quorum queues Celery sets up 28 delay queues for `eta` and `countdown`. We use neither: the time of the next attempt
stands in the row.
"""

from celery.worker.consumer import consumer


class Consumer(consumer.Consumer):  # type: ignore[misc]
    """The consumer of the notifier."""

    class Blueprint(consumer.Consumer.Blueprint):  # type: ignore[misc]
        """Its boot steps."""

        default_steps = tuple(
            step for step in consumer.Consumer.Blueprint.default_steps if "delayed_delivery" not in str(step)
        )
