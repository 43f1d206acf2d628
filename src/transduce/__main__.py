"""`python -m transduce`: the same as `transduce`."""

import sys

from transduce.cli import main

sys.exit(main())
