"""The rules for the content of requests and items. Pure."""
