"""Slackwater's implementation of OpenAI's batch API: speed of files and batches, and the losses of a killed service."""
