"""Background shells: GPU worker, notifier, steward. They never import the API or the CLI."""
