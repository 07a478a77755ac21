"""`python -m llamay` is `llamay`."""

import sys

from llamay.cli import main

if __name__ == "__main__":
    sys.exit(main())
