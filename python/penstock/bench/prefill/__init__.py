"""The cases of attention, and their peers."""
