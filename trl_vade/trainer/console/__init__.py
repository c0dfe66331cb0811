"""What a run shows: a panel on a terminal, one line a logging step in a file or a notebook."""
