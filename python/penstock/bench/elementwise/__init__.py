"""The cases of transform, and their peers."""
