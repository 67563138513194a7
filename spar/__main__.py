"""`python -m spar` is `spar`."""

from spar.cli import main

if __name__ == "__main__":
    main()
