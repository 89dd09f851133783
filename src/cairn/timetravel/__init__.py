"""Time travel over a root: every change of an entry is recorded, and any moment can be read back."""
