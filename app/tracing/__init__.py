"""Traces of OpenTelemetry: what has a span, what it is called, and how it gets to a collector. docs/traces.md has the whole."""
