"""Cairn: long-term memory for AI agents that a person can read."""

__version__ = "0.1.0"
