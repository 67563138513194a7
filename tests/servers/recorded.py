"""Stand-in for a service of another version: answers recorded requests over the control socket of a state directory."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from spar.fs.lock import STATE_LOCK, FileLock
from spar.net.control_socket import SOCKET_NAME, short_path

Recording = dict[str, dict[str, Any]]
FOLDER = Path(__file__).parent / "recordings"
#: The build of each recording; a recording has, for each request, the status, the type and the body of its answer.
BUILDS = {"first_build": "6ea25d4", "second_build": "7ee3683"}


def recording(build: str) -> Recording:
    loaded: Recording = json.loads((FOLDER / f"{build}.json").read_text())
    return loaded


@contextmanager
def answering(state: Path, answers: Recording) -> Iterator[list[str]]:
    """Answer requests until the end of the block; yields the list of the requests as they come."""
    requests: list[str] = []
    is_over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            request = f"{self.command} {self.path.partition('?')[0]}"
            requests.append(f"{self.command} {self.path}")
            absent = {"status": 404, "detail": f"nothing at {self.path!r}; the API is under /v1"}
            answer = answers.get(request, {"status": 404, "type": "application/problem+json", "body": absent})
            body = answer["body"] if isinstance(answer["body"], str) else json.dumps(answer["body"])
            self.send_response(answer["status"])
            self.send_header("content-type", answer["type"])
            is_open = request == "GET /v1/events" and answer["status"] == 200  # a stream that goes on
            if not is_open:
                self.send_header("content-length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())
            if is_open:
                is_over.wait()

        do_POST = do_PATCH = do_DELETE = do_GET

        def address_string(self) -> str:
            return "the command"

        def log_message(self, format: str, *args: Any) -> None:
            pass

    state.mkdir(parents=True, exist_ok=True)
    with short_path(state / SOCKET_NAME) as path:
        server = socketserver.ThreadingUnixStreamServer(path, Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    lock = FileLock(state / STATE_LOCK)
    lock.acquire()
    try:
        yield requests
    finally:
        lock.release()
        is_over.set()
        server.shutdown()
        server.server_close()
        thread.join()
