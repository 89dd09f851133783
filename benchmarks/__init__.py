"""Benchmarks, one module per part; `python -m benchmarks PART` runs one, without PART all of them."""
