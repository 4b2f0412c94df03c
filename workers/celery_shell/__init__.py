"""How our Celery workers run: one queue each, threads that pass work to one event loop, no gossip, no remote control."""

THREADS = 4  # a task only passes its work to an event loop, and waits for it
