"""Checks of the installation: configuration, secrets, folders, port, systemd unit and versions."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from spar import __version__
from spar.cli.doctor.machine import Subject, examined, nearest, permissions_of
from spar.config.load import leaves
from spar.config.tables.secret import ORIGINS, SecretReference
from spar.data.scrub import is_secret_name
from spar.data.text import printable
from spar.errors import ConfigError, KeyPath
from spar.parts.factory import options_of, secrets_of
from spar.ports.store import CareLine
from spar.service.unit import WRITTEN_BY

_OTHERS_WRITE: Final = 0o002
_OTHERS_READ: Final = 0o077
#: Patterns of texts that are no keys, such as placeholders and unexpanded variables, with the sentence for each.
SHAPES: Final = (
    (re.compile(r"\s"), "has a space or a line break in it"),
    (re.compile(r"^[\"'].*[\"']$"), "stands in quotes, which would be sent with it"),
    (re.compile(r"[^\x21-\x7e]"), "has characters that no header can carry"),
    (re.compile(r"^\$|\$\{|^<.*>$|^%\w+%$"), "is the name of a variable that nothing has put in"),
    (
        re.compile(r"(?i)^(changeme|todo|secret|password|your[-_ ]?(api[-_ ]?)?key.*|x{3,}|sk-(x+|\.+|…))$"),
        "is an example",
    ),
)
#: Shortest plausible key, in characters.
LEAST_KEY: Final = 8
#: The variable with the key of each provider if the configuration names none.
USUAL: Final = {
    "openai": "OPENAI_API_KEY",
    "openai-chat": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "groq": "GROQ_API_KEY",
    "mistral": "MISTRAL_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "cohere": "CO_API_KEY",
}


def configuration(subject: Subject) -> Iterator[CareLine]:
    """Check who may write the configuration file, and who may read the secrets in it."""
    path = subject.loaded.path
    mode, quoted = permissions_of(path) if path else 0, shlex.quote(str(path))
    names = (where[-1] for where, _ in _texts(subject))
    has_secret = any(name not in ORIGINS and is_secret_name(str(name)) for name in names)  # ORIGINS: of a reference
    yield examined(
        "configuration", str(path or "the defaults"),
        (mode & _OTHERS_WRITE, "bad",
         f"{path} can be changed by others than its owner ({mode:o}): they command the service",
         f"chmod go-w {quoted}"),
        (mode & _OTHERS_READ and has_secret, "warn", f"{path} holds a secret and can be read by others ({mode:o})",
         f'chmod 600 {quoted}, or keep the secret elsewhere: {{ file = "…" }}'),
    )  # fmt: skip


def folders(subject: Subject) -> Iterator[CareLine]:
    """Check that the folders of the service can be written, and that only its user can read its state."""
    for name, folder in (("state folder", subject.state_dir), ("workspace", subject.workspace)):
        near, mode = nearest(folder), permissions_of(folder) if name == "state folder" else 0
        yield examined(
            name, str(folder),
            (folder.exists() and not folder.is_dir(), "bad", f"{folder} is no folder",
             "move it away, or name another one in [service]"),
            (not os.access(near, os.W_OK | os.X_OK), "bad", f"{near} cannot be written",
             f"give it to the user of the service: chown USER {shlex.quote(str(near))}"),
            (mode & _OTHERS_READ, "warn", f"{folder} can be entered by others ({mode:o}): it holds conversations",
             f"chmod 700 {shlex.quote(str(folder))}"),
        )  # fmt: skip


def secrets(subject: Subject) -> Iterator[CareLine]:
    """Check each secret that the configuration refers to: that it can be read, its form, and who else can read it."""
    try:
        references = [*secrets_of(subject.loaded), *_variables(subject)]
    except ConfigError as error:
        yield CareLine("secrets", "bad", str(error), "spar config check")
        return
    yield from (_secret(reference, subject) for reference in references)
    if not references:
        yield CareLine("secrets", "ok", "none is named")


def _secret(reference: SecretReference, subject: Subject) -> CareLine:
    name, folder = f"secret {reference.name}", subject.loaded.folder
    try:
        text = reference.read(folder, subject.environ)
    except ValueError as error:
        hint = {
            "file": "write it there, readable by the service's user",
            "env": f"set {reference.name} in the environment of the service",
            "credential": "look as the service does: systemctl status",
        }[reference.origin]
        return CareLine(name, "bad", str(error), hint)
    wrong = next((sentence for shape, sentence in SHAPES if shape.search(text)), "")
    if len(text) < LEAST_KEY and not wrong:
        wrong = f"has {len(text)} characters, fewer than any key"
    path = reference.file(folder, subject.environ)
    mode = permissions_of(path) if path and reference.origin == "file" else 0
    is_key = reference.path[-1] in ("api_key", "key_env")  # the form of others, such as passphrases, is not checked
    return examined(
        name, f"from {reference.origin}",
        (wrong and is_key, "bad", f"its value {wrong}", "copy the key again from where the provider shows it"),
        (mode & 0o007, "warn", f"{path} can be read by everybody ({mode:o})", f"chmod o= {shlex.quote(str(path))}"),
    )  # fmt: skip


def _variables(subject: Subject) -> Iterator[SecretReference]:
    """Yield the variables that options name (`key_env`, `password_env`), and those that providers use by default."""
    yield from (SecretReference(where, "env", text) for where, text in _texts(subject)
                if str(where[-1]).endswith("_env"))  # fmt: skip
    plan = subject.loaded.settings.plan
    if plan.use != "llm" or plan.options.get("key_env") or plan.options.get("api_key") or plan.options.get("base_url"):
        return
    models = plan.options.get("model", ())
    for model in [models] if isinstance(models, (str, Mapping)) else models:
        table = model if isinstance(model, Mapping) else {"name": model}
        provider = str(table.get("name", "")).partition(":")[0]
        if provider in USUAL and not {"key_env", "api_key", "base_url"} & set(table):
            yield SecretReference(("plan", "options", "key_env"), "env", USUAL[provider])


def _texts(subject: Subject) -> Iterator[tuple[KeyPath, str]]:
    """Yield each text in the options of all parts, with its path."""
    for path, options in options_of(subject.loaded.settings):
        yield from ((where, text) for where, text in leaves(options, path, of_lists=True)
                    if text and isinstance(text, str))  # fmt: skip


def port(subject: Subject) -> Iterator[CareLine]:
    """Check that the port is free, unless this service runs and uses it."""
    settings = subject.loaded.settings.service
    if not settings.probes or not settings.port or subject.process is not None:
        return
    try:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((settings.host, settings.port))
        why = ""
    except OSError as error:
        why = error.strerror or "?"
    place = f"{settings.host}:{settings.port}"
    yield examined(
        "port", f"{place} is free",
        (why, "bad", f"{place} cannot be had: {why}",
         f"set service.port to another one, or see who has it: ss -ltnp 'sport = :{settings.port}'"),
    )  # fmt: skip


def unit(subject: Subject) -> Iterator[CareLine]:
    """Check each systemd unit that runs this configuration: that its program exists, and that it has not failed."""
    config = subject.loaded.path
    home = Path(subject.environ.get("XDG_CONFIG_HOME") or f"{subject.environ.get('HOME', '')}/.config")
    for folder, words in ((Path("/etc/systemd/system"), ()), (home / "systemd/user", ("--user",))):
        for path in sorted(folder.glob("*.service")) if config else ():
            text = path.read_text(errors="replace") if os.access(path, os.R_OK) else ""
            if text.startswith(WRITTEN_BY) and f" -c {config.resolve() if config else ''} run" in text:
                yield _unit(path, text, words)


def _unit(path: Path, text: str, words: tuple[str, ...]) -> CareLine:
    name = path.stem
    command = " ".join(["spar service install", *words, *(["--name", name] if name != "spar" else [])])
    (program,) = re.findall(r'^ExecStart="?(.+?)"? -m spar ', text, re.M)[:1] or [""]
    systemctl = shutil.which("systemctl")
    state = "" if systemctl is None else _state_of([systemctl, *words, "is-active", f"{name}.service"])
    log = " ".join(["journalctl", *words, "-u", name])
    return examined(
        "unit", f"{name}: {state or 'unknown'}",
        (not os.access(program.replace("%%", "%"), os.X_OK), "bad", f"{path} starts {program}, which is not there",
         f"write it again: {command}"),
        (systemctl is None, "warn", f"{path} is there, and this machine has no systemctl",
         "spar run, by what starts services here"),
        (state == "failed", "bad", f"{name} has failed",
         f"read why, then start it: {log}; systemctl {' '.join(words)} restart {name}"),
    )  # fmt: skip


def _state_of(command: list[str]) -> str:
    result = subprocess.run(command, capture_output=True, text=True)
    return printable(result.stdout.strip() or result.stderr.strip().partition("\n")[0])


def versions(subject: Subject, running: str | None) -> Iterator[CareLine]:
    """Compare the installed version with the running one."""
    yield examined(
        "version", __version__,
        (running not in (None, __version__), "warn",
         f"{__version__} is installed, and the service still runs {running}",
         "restart it when it suits you: systemctl restart spar, or spar stop and spar run"),
    )  # fmt: skip
