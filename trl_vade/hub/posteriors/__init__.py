"""Posteriors as tables: writing, reading, publishing and loading."""
