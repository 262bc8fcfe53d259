"""Lets ``python -m torchapl.cli`` stand for the command ``torchapl``."""

import sys

from torchapl.cli import main

sys.exit(main())
