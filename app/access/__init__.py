"""Who may look at the console and act in it: roles, one-time links, sessions, and the audit log of what was done there."""
