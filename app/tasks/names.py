"""Names that producers and the Celery worker share."""

WEBHOOKS = "webhooks"
BATCH_IO = "batch_io"
MAINTENANCE = "maintenance"
QUEUES = (WEBHOOKS, BATCH_IO, MAINTENANCE)

DELIVER = "webhooks.deliver"
