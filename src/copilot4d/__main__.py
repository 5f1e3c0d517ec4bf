"""`python -m copilot4d VERB ...` is the same as `copilot4d VERB ...`."""

from __future__ import annotations

import sys

from copilot4d.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
