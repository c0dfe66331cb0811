"""Selection for a run: choose rows on time, feed outcomes back, log them, and report."""
