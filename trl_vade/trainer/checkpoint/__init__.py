"""Checkpoints: the posterior, generation batches, the reference model, complete folders and resumes."""
