"""The cases of moe and route, and their peers."""
