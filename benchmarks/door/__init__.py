"""The time that the door adds to a request at vLLM's own server."""
