"""The command line. Each file is one group of commands; heavy imports happen inside them."""

from spar.cli.main import main as main
