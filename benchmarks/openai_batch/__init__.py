"""OpenAI's batch API measured: files in and out, and what a killed service loses or runs again."""
