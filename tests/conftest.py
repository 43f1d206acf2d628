"""For all tests: torch's threads sleep while they wait, as on the command line, and Triton interprets its kernels."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported; 0 runs them on a GPU
