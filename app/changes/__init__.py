"""What changed in the installation, and when: deaths, failures, leaders, versions. Whoever causes a change writes it."""
