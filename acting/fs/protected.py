"""Protected names in a workspace, which no tool may use, even with approval: secrets, and files that others execute.

A hook in `.git`, a line in `.bashrc` or a setting of an editor runs later with more rights than a tool has. Names are
compared like in the most lenient file systems (case, width, invisible characters, trailing dots), so that every
spelling is found. The service's own configuration and state need no entry: no workspace may hold them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

_SECRETS = re.compile(
    r"\.env(\..*)?|\.ssh|\.gnupg|\.aws|\.azure|\.kube|\.docker|\.netrc|_netrc|\.pgpass|\.my\.cnf|\.pypirc|\.npmrc"
    r"|\.git-credentials|id_(rsa|dsa|ecdsa|ed25519)(_sk)?"
)
_EXECUTED = re.compile(
    r"\.git|git~\d|\.gitconfig|\.gitmodules|\.hg|\.envrc|\.(k|c|tc)?shrc|\.bashrc|\.zshrc|\.zshenv|\.zlogin|\.zlogout"
    r"|\.z?profile|\.bash_(profile|login|logout|aliases)|\.inputrc|\.xinitrc|\.xprofile|\.xsessionrc|\.pythonrc|\.pdbrc"
    r"|\.vimrc|\.vscode|\.idea|\.cursor|\.claude|\.roo|\.zed|\.mcp\.json|\.config"
)
_EXAMPLES = re.compile(r"\.env\.(example|sample|template|dist)")


def protected(parts: Sequence[str], *, change: bool) -> str:
    """Return the first component that must not be read (with `change`: or not be changed), or ""."""
    for part in parts:
        name = _folded(part)
        if _SECRETS.fullmatch(name) and not _EXAMPLES.fullmatch(name):
            return part
        if change and _EXECUTED.fullmatch(name):
            return part
    return ""


def _folded(name: str) -> str:
    wide = unicodedata.normalize("NFKC", name)
    seen = "".join(sign for sign in wide if unicodedata.category(sign) not in ("Cf", "Cc", "Mn"))
    return seen.partition(":")[0].rstrip(". ").casefold()  # NTFS: `.git::$INDEX_ALLOCATION`, `.git. .`
