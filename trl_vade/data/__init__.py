"""The training rows: their images, keys, names and prompt lengths, and how a process loads its share."""
