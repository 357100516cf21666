"""``python -m expacc`` is the command line."""

import sys

from expacc.cli import main

sys.exit(main())
