"""OpenAI's resources over the queue: batches of files, uploads, background responses."""
