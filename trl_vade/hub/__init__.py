"""Uploads to the Hugging Face Hub with retries and checks, and the metadata of cards."""
