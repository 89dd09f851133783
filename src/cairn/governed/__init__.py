"""Governed memories: what passes the write gate, how it ages, is corrected, used by agents, and forgotten."""
