"""From past sweeps to future ones: the model with all its parts, frame by frame, and how one is found by name."""
