"""Uploads of a run to the Hub, and its model card."""
