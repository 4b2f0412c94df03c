"""The use cases of a batch: submit, show its state, change it, make it final."""
