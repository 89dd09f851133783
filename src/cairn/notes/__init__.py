"""Markdown files of entries: read and written exact to the byte, by one writer."""
