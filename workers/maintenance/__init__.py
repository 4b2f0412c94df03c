"""The maintenance worker: a Celery worker that does the duties which the leading steward asks for (`app.duties`)."""
