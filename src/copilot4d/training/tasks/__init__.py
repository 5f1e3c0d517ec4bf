"""What is trained: one file per network."""
