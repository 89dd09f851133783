"""Implementations of the seams: storage, journals, locks, queues, index, models. Chosen in `parts` and
`projects`.
"""
