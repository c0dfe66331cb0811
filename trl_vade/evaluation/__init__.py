"""Evaluation of models on benchmarks by lmms-eval."""
