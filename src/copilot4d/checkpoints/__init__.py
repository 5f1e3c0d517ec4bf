"""Weights on disk: sealed folders, checkpoints, pretrained folders, model folders. No training code."""
