"""What fulfils the seams: storage, journals, locks, queues, the index, models; picked in `parts` and `projects`."""
