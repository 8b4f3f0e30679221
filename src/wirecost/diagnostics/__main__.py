"""`python -m wirecost.diagnostics`: prints docs/reference/diagnostics.md."""

import sys

from wirecost.diagnostics.page import page

if __name__ == "__main__":
    sys.stdout.write(page())
