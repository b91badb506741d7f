"""The cases of appending to a key-value cache."""
