"""Coding agents: their hooks, their transcripts, and the warm process that answers them quickly."""
