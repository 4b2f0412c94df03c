"""The HTTP shell: thin routes that parse, call one verb and answer. No broker, no engine."""
