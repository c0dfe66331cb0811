"""What a run shows: one line a logging step, and on a terminal a bar below."""
