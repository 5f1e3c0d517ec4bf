"""`copilot4d view`: the what-if studio. Pick a moment, draw the ego's way, watch the futures that follow."""
