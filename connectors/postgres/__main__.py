"""The command line of the source."""

import sys

from connectors.postgres import Postgres
from connectors.sdk import run

if __name__ == "__main__":
    sys.exit(run(Postgres(), sys.argv[1:]))
