"""A stand-in for a service that can die: it writes its process id, and sleeps until it is ended."""

import os
import signal
from pathlib import Path

Path(__file__).with_suffix(".pid").write_text(str(os.getpid()))
signal.pause()
