"""Entry point of `python -m connectors.testing`."""

import sys

from connectors.testing.cli import main

sys.exit(main())
