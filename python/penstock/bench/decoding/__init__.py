"""Benchmarks of attention of one query per sequence."""
