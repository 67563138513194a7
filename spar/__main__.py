"""Entry point of `python -m spar`, which is the same as `spar`."""

from spar.cli import main

if __name__ == "__main__":
    main()
