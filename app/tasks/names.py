"""Names that producers and the Celery worker share."""

WEBHOOKS = "webhooks"

DELIVER = "webhooks.deliver"
