"""`VADEGRPOTrainer` with its configuration, checks, checkpoints, generation and uploads."""
