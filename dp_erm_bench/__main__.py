"""Run the command line as `python -m dp_erm_bench`."""

import sys

from dp_erm_bench.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
