"""Text tools shared by capture, search and strategies: words, sentences, dates. Pure functions only."""
