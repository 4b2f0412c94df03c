"""What an installation has to do now and then, and may take long: which duties there are, and how each of them stands.

The leading steward asks for what is due (`standing.ask`) and sends a hint. A maintenance worker does it (`workers.maintenance`).
"""
