"""Each image of a generation batch once: through the processor, in the buffer, and through the vision tower."""
