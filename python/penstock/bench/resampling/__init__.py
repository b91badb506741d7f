"""Data, references and peers of the resample benchmark; operators/resample.py lists its cases."""
