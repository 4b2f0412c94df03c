"""What runs inside the engine's own processes: vLLM and the pure modules of `app`, nothing of the worker."""
