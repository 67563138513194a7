#!/bin/sh
# Measure spar beside its peers: benchmarks/run.sh [--only cycle,9] [--quick] [--uvloop] [--json [FILE] | --beside COMMIT]
# The environment benchmarks/.venv is made anew when requirements.txt or pyproject.toml have changed. A peer that cannot
# be installed is left out, and its lines in the table say so. LLMCompiler is no package: its checkout is looked for in
# .cache/LLMCompiler, or where LLMCOMPILER says.
set -eu
cd "$(dirname "$0")/.."
venv=benchmarks/.venv
wanted=$(cat benchmarks/requirements.txt pyproject.toml)
install() { "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"; }
if [ "$wanted" != "$(cat "$venv/made-of" 2>/dev/null || true)" ]; then
    "${PYTHON:-python3}" -m venv --clear "$venv"
    if install --requirement benchmarks/requirements.txt --editable ".[otel]"; then
        printf '%s\n' "$wanted" >"$venv/made-of"
    else
        install --editable ".[otel]"
        sed 's/ *#.*//; /^$/d' benchmarks/requirements.txt | while read -r peer; do
            install "$peer" || echo "$peer cannot be installed: the table says so where it belongs" >&2
        done
    fi
fi
exec "$venv/bin/python" -m benchmarks "$@"
