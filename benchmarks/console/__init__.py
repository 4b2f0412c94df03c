"""What traces, dashboards and the console cost."""
