"""Names that producers and the Celery workers share."""

WEBHOOKS = "webhooks"
DUTIES = "duties"

DELIVER = "webhooks.deliver"
DO = "duties.do"
