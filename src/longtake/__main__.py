"""`python -m longtake` is the command `longtake`."""

from longtake.cli import main

main()
