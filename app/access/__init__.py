"""Who may look at the console and act in it: roles, one-time links and sessions."""
