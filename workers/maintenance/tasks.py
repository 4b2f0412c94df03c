"""The Celery task. Its argument is the name of a duty; rows hold whether it is to be done."""

from celery import Celery

from app.tasks import names
from workers.maintenance.worker import Worker


def register(app: Celery, worker: Worker) -> None:
    """Add the task to `app`. It runs on `worker`."""

    @app.task(name=names.DO)  # type: ignore[untyped-decorator]
    def do(name: str) -> None:
        """Do a duty. The task ends with it."""
        worker.do(name)
