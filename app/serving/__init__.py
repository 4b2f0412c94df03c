"""What the API and the console have in common as HTTP servers: limits on clients that nobody knows yet."""
