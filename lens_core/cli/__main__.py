"""`python -m lens_core.cli` is `lens`."""

from . import main

main()
