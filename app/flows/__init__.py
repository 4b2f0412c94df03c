"""Pipelines: their definition, the language of their templates and conditions, and the numbers of their items."""
