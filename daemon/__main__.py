"""`python -m daemon` is the command `shiftwork`."""

from __future__ import annotations

import sys

from daemon.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
