"""The cases of gemm, and their peers."""
