#!/bin/sh
# Brings into .cache/servers what tests need besides, at fixed versions: the MCP servers of
# tests/process/test_mcp_servers.py, three from npm, three from PyPI, the small language model of
# tests/servers/tiny_llm.py, pyright, from npm, for tests/docs/test_documents.py, axe-core, from npm, for tests/console,
# and TextWorld, a part of which is compiled. Needs node with npm, gcc with make, and a Python with a new pip (PYTHON,
# python3 by default). Once they are there the tests need no network. Does nothing when nothing has changed since the
# last time.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=$here/../../.cache/servers
python=${PYTHON:-python3}
wanted=$(cat "$here/package.json" "$here"/requirements*.txt | cksum)
[ -f "$target/installed" ] && [ "$(cat "$target/installed")" = "$wanted" ] && exit 0

rm -rf "$target"
mkdir -p "$target"
echo '*' >"$target/.gitignore"
cp "$here/package.json" "$target/"
(cd "$target" && npm install --silent --no-fund --no-audit --no-package-lock --ignore-scripts)
for environment in venv venv-old venv-llm; do
    "$python" -m venv --without-pip "$target/$environment"
done
install() { # ENVIRONMENT ARGUMENT...
    environment=$1
    shift
    "$python" -m pip --quiet --disable-pip-version-check --python "$target/$environment/bin/python" \
        install --no-compile "$@"
}
install venv -r "$here/requirements.txt"
install venv-old -r "$here/requirements-old.txt"
install venv-llm --no-deps -r "$here/requirements-llm.txt"
install venv --no-deps --target "$target/textworld" -r "$here/requirements-textworld.txt"
echo "$wanted" >"$target/installed"
