"""The command line: thin shells that run one part, all parts, or one administrative verb."""
