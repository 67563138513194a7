"""What a call of a program stands for: the files it is made of, and whether one permission would permit everything.

Pure reading; `tools/shell` tells it to whoever asks a person (see `binding`).
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

_LARGEST = 256 << 20  # bytes of an operand that are hashed; about a quarter of a second

# They run what their arguments say, or start what others say, or hand a shell to whoever asks for one.
_INTERPRETERS = frozenset(
    """
    sh bash dash zsh ksh mksh ash rbash fish csh tcsh busybox toybox python pypy perl ruby irb node nodejs deno bun lua
    luajit php tclsh wish expect r rscript julia java jshell groovy scala guile racket sbcl clisp ocaml erl escript
    elixir iex ghci gdb lldb env xargs find fd sed gsed ssed awk gawk mawk nawk original-awk tar gtar bsdtar zip rsync
    ssh scp sftp make gmake bmake cmake ninja meson just sudo su doas pkexec runuser setpriv capsh nohup nice ionice
    chrt taskset timeout stdbuf setsid setarch flock watch time strace ltrace script unshare nsenter chroot bwrap
    firejail docker podman nerdctl ctr kubectl helm systemd-run systemctl at batch crontab parallel entr vi vim nvim ex
    view rvim less more man emacs nano ed npm npx yarn pnpm pip pipx uv uvx poetry cargo go gradle mvn sqlite psql mysql
    ftp socat nc ncat telnet ip tcpdump apt apt-get dpkg rpm dnf yum start-stop-daemon run-parts ldd prlimit logsave
    """.split()  # noqa: SIM905 - one a line they would fill three pages
)
_LOADER = re.compile(r"ld(-linux|-musl)?[-\w.]*\.so[.\d]*\Z")
_VERSION = re.compile(r"[-.\d]+\Z")

# The options by which a program that is harmless otherwise runs others; each also as the beginning of `--option=value`.
_LEADING_OUT = {
    "git": (
        *("-c", "--config-env", "--exec-path", "--git-dir", "--work-tree", "-C", "--template", "--upload-pack", "-u"),
        *("--receive-pack", "--exec", "-x", "--ext-diff", "--textconv", "--open-files-in-pager", "-O"),
    ),
    "sort": ("--compress-program",),
    "split": ("--filter",),
    "curl": ("-K", "--config"),
    "wget": ("--use-askpass", "-e", "--execute", "--config"),
}


def digest_of(path: str) -> str:
    """SHA-256 of a file's content, hexadecimal. Raises: OSError."""
    with open(path, "rb") as file:  # noqa: PTH123 - the descriptor that is read is the one that was opened
        return hashlib.file_digest(file, "sha256").hexdigest()


def operands(words: Sequence[str], workspace: str) -> dict[str, str]:
    """Each argument that names a regular file of the workspace, also as `--option=file`, with the file's SHA-256.

    Of a file too large to be hashed it is its size, inode and times, which whoever may write it can forge.
    """
    found = {}
    for word in words:
        for name in {word, word.partition("=")[2] if word.startswith("-") else word}:
            path = Path(os.path.realpath(os.path.join(workspace, name)))  # noqa: PTH118
            try:
                about = path.stat() if name and path.is_relative_to(workspace) else None
            except OSError:
                continue  # there is no such file, and once there is one, the call stands for something else
            if about is None or not stat.S_ISREG(about.st_mode):
                continue
            try:
                if about.st_size <= _LARGEST:
                    found[word] = digest_of(str(path))
                else:
                    found[word] = f"large: {about.st_size} bytes, inode {about.st_ino}, changed {about.st_ctime_ns}"
            except OSError as error:
                found[word] = f"unreadable: {error.strerror}"
    return found


def why_not_standing(path: str, words: Sequence[str], workspace: str) -> str:
    """Why a call must be approved each time; "" when it need not. `path` is the program's real file."""
    if Path(path).is_relative_to(workspace):
        return f"{words[0]!r} lies in the workspace, where its content may change"
    for name in (Path(path).name, Path(words[0]).name):
        plain = name.lower()
        known = {plain, _VERSION.sub("", plain)}
        if known & _INTERPRETERS or _LOADER.match(plain):
            return f"{name!r} runs what its arguments say, so that one permission would permit everything"
        for program in known & _LEADING_OUT.keys():
            for option in _LEADING_OUT[program]:
                if any(_is_given(option, word) for word in words[1:]):
                    return f"{name!r} with {option!r} runs other programs"
    return ""


def _is_given(option: str, word: str) -> bool:
    """Whether a word is this option; long ones also with a value or cut short, short ones with a value behind."""
    if option.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > 2 and option.startswith(name)
    return word.startswith(option) and not word.startswith("--")
