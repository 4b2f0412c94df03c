"""Conversations: their turns one at a time, responses that continue others, checkpoints."""
