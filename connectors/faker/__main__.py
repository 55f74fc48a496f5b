"""The command line of the shop."""

import sys

from connectors.faker import Faker
from connectors.sdk import run

if __name__ == "__main__":
    sys.exit(run(Faker(), sys.argv[1:]))
