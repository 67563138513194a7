"""The service that breaks: a stand-in with metrics for Prometheus, a log, and a load that rises with its trouble.

python shop.py PORT FOLDER        POST /break breaks it; only a restart mends it
"""

import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PORT, FOLDER = int(sys.argv[1]), Path(sys.argv[2])
BROKEN = threading.Event()


def told(load: float, *lines: str) -> None:
    with (FOLDER / "shop.log").open("a") as log:
        log.writelines(f"{line}\n" for line in lines)
    time.sleep(1)  # the load follows the trouble
    (FOLDER / "load").write_text(str(load))


class Shop(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.answer(f"shop_orders_accepted {0 if BROKEN.is_set() else 1}\n")

    def do_POST(self) -> None:
        BROKEN.set()
        told(
            9.1, "ERROR shop: no connection to the database", "ERROR shop: order is not written to /srv/shop/orders.db"
        )
        self.answer("broken\n")

    def answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        return


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Shop)
    told(0.2, "INFO shop: ready")
    (FOLDER / "shop.started").open("a").write("started\n")
    server.serve_forever()
