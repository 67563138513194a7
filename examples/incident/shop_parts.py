"""The agent's own parts for the shop: its log, its load, and the tool that restarts it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from perception.sensors.host import HostSensor
from spar import Perception, tool

FOLDER = Path(os.environ.get("SHOP_FOLDER", "."))


class ShopLog:
    """A sensor that reads the lines that were added to the log; its cursor is how far it has read."""

    every = 0.1

    async def open(self, ctx) -> None:  # type: ignore[no-untyped-def]
        self._ctx, self._read = ctx, int(ctx.cursor or 0)

    def poll(self) -> list[Perception]:
        path = FOLDER / "shop.log"
        if not path.exists():
            return []
        with path.open("rb") as log:
            log.seek(self._read)
            lines = [line for line in log if line.endswith(b"\n")]
        noticed = []
        for line in lines:
            noticed.append(Perception(line.decode().strip(), key=f"shop.log {self._read}"))
            self._read += len(line)
        if lines:
            self._ctx.checkpoint(self._read)
        return noticed


class ShopLoad(HostSensor):
    """The sensor of this machine's load, which is told here by the shop."""

    def __init__(self) -> None:
        super().__init__(every=0.1, disks=(), read=self._measured)

    def _measured(self, kind: str, disk: str) -> float:
        path = FOLDER / "load"
        text = path.read_text() if kind == "host.load" and path.exists() else ""
        return float(text or 0.0)


@tool(effect="idempotent")
def restart_shop(reason: str = "") -> str:
    """Restart the shop: end its process and start another one."""
    pid_file = FOLDER / "shop.pid"
    pid = int(pid_file.read_text())
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
    time.sleep(0.05)
    port = (FOLDER / "shop.port").read_text()
    process = subprocess.Popen([sys.executable, str(Path(__file__).parent / "shop.py"), port, str(FOLDER)],
                               stdin=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    pid_file.write_text(str(process.pid))
    return f"restarted as {process.pid}"
