"""What pipelines and conversations cost, and what they save: `python -m benchmarks.pipelines`."""
