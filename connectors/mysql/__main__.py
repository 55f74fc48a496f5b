"""The command line of the source."""

import sys

from connectors.mysql.source import MySql
from connectors.sdk import run

if __name__ == "__main__":
    sys.exit(run(MySql(), sys.argv[1:]))
