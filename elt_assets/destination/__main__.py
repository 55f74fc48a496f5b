"""Entry point of `python -m elt_assets.destination`."""

import sys

from elt_assets.destination.entry import main

sys.exit(main())
