"""The command line of the source of files."""

import sys

from connectors.files import Files
from connectors.sdk import run

if __name__ == "__main__":
    sys.exit(run(Files(), sys.argv[1:]))
