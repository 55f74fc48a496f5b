"""Entry point of `python -m elt_assets.cli`."""

import sys

from elt_assets.cli.entry import main

sys.exit(main())
