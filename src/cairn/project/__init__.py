"""The memory of a repository: its events, checkpoints, bundle and pages."""
