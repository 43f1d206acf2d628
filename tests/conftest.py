"""For all tests: torch's threads sleep while they wait, as under the command line (see cli.py)."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
