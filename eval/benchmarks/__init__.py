"""What the figures of README.md and LOG.md are measured with; from the root: `python -m eval.benchmarks.<name>`."""
