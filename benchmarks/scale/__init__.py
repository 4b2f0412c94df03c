"""What one PostgreSQL carries, and what survives while it grows, is upgraded or fails over."""
