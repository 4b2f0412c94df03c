"""What a request or an item of a batch may say. Pure."""
