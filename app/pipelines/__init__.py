"""Pipelines: batches whose items are made from the results of another."""
