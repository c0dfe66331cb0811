"""Corrections of TRL's generation engines, and seeds of their requests."""
