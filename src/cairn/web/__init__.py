"""The page: what is remembered, why, and putting it right, in a browser. Loaded when somebody first asks for it."""
