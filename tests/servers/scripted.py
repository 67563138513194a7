"""An MCP server over standard streams that does what a test wants, good or bad. No library, so that it starts at once.

Usage: scripted.py FOLDER. It offers the tools in FOLDER/tools.json, read anew for each listing; a tool does what its
name says, whatever it is described as. FOLDER/mode says how it starts; FOLDER/starts gets a line for each start.
"""

import base64
import json
import os
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])
CANCELLED = []


def say(**fields):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **fields}) + "\n")
    sys.stdout.flush()


def raw(data):
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def text(value):
    return {"content": [{"type": "text", "text": value}]}


def flood(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        raw(b"no MCP message\n" * 4000)


def child():
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    return subprocess.Popen(command, start_new_session=True, stdout=None, stdin=subprocess.DEVNULL).pid


def call(number, name, params, token):
    if name == "echo":
        return text(json.dumps(params))
    if name == "environ":
        return text(json.dumps({"env": dict(os.environ), "cwd": str(Path.cwd())}))
    if name == "look":
        return text("there" if os.access(params["path"], os.R_OK) else "not there")
    if name == "structured":
        return {"content": [], "structuredContent": params["value"]}
    if name == "fail":
        return {**text("no such thing\x1b[31m"), "isError": True}
    if name == "refuse":
        say(id=number, error={"code": -32602, "message": "unknown tool"})
        return None
    if name == "image":
        data = base64.b64encode(b"x" * 1000).decode()
        return {"content": [{"type": "text", "text": "look"}, {"type": "image", "data": data, "mimeType": "image/png"}]}
    if name == "die":
        sys.stderr.write("about to die, token=abcdefgh\n")
        os._exit(3)
    if name == "hang":
        time.sleep(60)
    if name == "silent":
        if os.access(FOLDER, os.W_OK):
            (FOLDER / "silent").touch()
        return None
    if name == "garbage":
        raw(b"Listening on port 8080\n\n{not json}\n[1, 2]\n" + b"\xff\xfe\n" + b"[" * 5000 + b"\n")
        return text("after the garbage")
    if name == "flood":
        flood(20)
    if name == "murmur":
        for line in range(5000):
            sys.stderr.write(f"murmur {line} {'x' * 500}\n")
        return text("murmured")
    if name == "big":
        return text("x" * params["size"])
    if name == "odd":
        say(id=number, result={"content": "no list"})
        return None
    if name == "ask":
        for asked in range(500):
            say(id=f"a{asked}", method="ping")
        return text("asked")
    if name == "child":
        return text(str(child()))
    if name == "change":
        say(method="notifications/tools/list_changed")
        return text("changed")
    if name == "cancelled":
        return text(json.dumps(CANCELLED))
    if name == "progress":
        for step in range(1000):
            say(method="notifications/progress", params={"progressToken": token, "progress": step, "total": 1000})
        return text("done")
    return text("?")


def serve():
    for line in sys.stdin:
        message = json.loads(line)
        number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if method == "initialize":
            about = {
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "scripted", "version": "1"},
            }
            say(id=number, result={"protocolVersion": "2025-06-18", **about})
        elif method == "tools/list":
            say(id=number, result={"tools": json.loads((FOLDER / "tools.json").read_text())})
        elif method == "tools/call":
            token = (params.get("_meta") or {}).get("progressToken")
            result = call(number, params["name"], params.get("arguments") or {}, token)
            if result is not None:
                say(id=number, result=result)
        elif method == "notifications/cancelled":
            CANCELLED.append(params["requestId"])
        elif number is not None and method is not None:
            say(id=number, error={"code": -32601, "message": "Method not found"})


if os.access(FOLDER, os.W_OK):  # not so in a sandbox
    with (FOLDER / "starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
mode = (FOLDER / "mode").read_text() if (FOLDER / "mode").exists() else ""
if mode == "exit":
    sys.exit("cannot open the database")
if mode == "mute":
    time.sleep(60)
if mode == "babble":
    flood(60)
if mode.startswith("slow"):
    time.sleep(float(mode.split()[1]))
serve()
if mode == "clinging":
    time.sleep(60)
