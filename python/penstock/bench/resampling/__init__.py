"""What the benchmark of resample is made of; operators/resample.py has its cases."""
