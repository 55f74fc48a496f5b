"""Entry point of `python -m connectors.sdk.testing`."""

import sys

from connectors.sdk.testing.cli import main

sys.exit(main())
