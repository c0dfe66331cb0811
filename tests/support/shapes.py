"""What is known of the published weights of Qwen2.5-VL."""

PARAMETERS = {"3b": 3_754_622_976, "7b": 8_292_166_656}
"""All parameters, a tied one once: what the index files of the weights count, too."""
