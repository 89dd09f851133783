"""Real kills, faults and fuzzing, one module per part; run by `make chaos`.

Each module has `run(seconds, seed) -> dict` of counts, and raises on a violation.
"""
