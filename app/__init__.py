"""Slackwater: durable batch inference in the slack of your GPUs."""
