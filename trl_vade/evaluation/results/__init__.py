"""Runs of lmms-eval, and the results computed from them."""
