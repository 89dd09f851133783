"""Real kills, faults and fuzzing, one module per part; run by `make chaos`."""
