"""Publication of an evaluation's results on the Hub."""
