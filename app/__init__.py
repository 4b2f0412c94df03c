"""Slackwater: durable batch inference in the slack of your GPUs."""

from workers.engine import __version__ as __version__  # one place for both wheels
