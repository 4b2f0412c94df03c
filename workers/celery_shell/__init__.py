"""How our Celery workers run: one queue each, threads that pass work to one event loop, no gossip, no remote control."""
