#!/bin/sh
# Measure spar beside its peers: benchmarks/run.sh [--only cycle,publish] [--quick] [--uvloop] [--json FILE]
# The environment benchmarks/.venv is made anew when requirements.txt or pyproject.toml have changed.
set -eu
cd "$(dirname "$0")/.."
venv=benchmarks/.venv
wanted=$(cat benchmarks/requirements.txt pyproject.toml)
if [ "$wanted" != "$(cat "$venv/made-of" 2>/dev/null || true)" ]; then
    "${PYTHON:-python3}" -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement benchmarks/requirements.txt --editable .
    printf '%s\n' "$wanted" >"$venv/made-of"
fi
exec "$venv/bin/python" -m benchmarks "$@"
