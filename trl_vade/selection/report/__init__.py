"""The report of a run, from its files: a table, a summary and a picture."""
