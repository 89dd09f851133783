"""From files to rows, and from a question to ranked hits with their sources."""
