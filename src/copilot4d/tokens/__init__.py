"""Tokens on disk: caches of tokenised drives, clips of them, and their augmentation."""
