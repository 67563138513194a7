"""The manifest that comes from the code: the alert rules, for the Prometheus operator. `make docs` writes it."""

from __future__ import annotations

from pathlib import Path

from spar.observe.shipped import shipped

FILE = Path(__file__).parents[2] / "deploy" / "kubernetes" / "prometheusrule.yaml"
HEAD = """\
# The rules of `spar observe rules`, for the Prometheus operator. Written by `make docs`; do not edit it.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: spar
  namespace: spar
  labels: {app.kubernetes.io/name: spar}
spec:
"""


def prometheus_rule() -> str:
    """Return the manifest."""
    return HEAD + "".join(f"  {line}" if line.strip() else line for line in shipped("rules.yml").splitlines(True))


if __name__ == "__main__":
    FILE.write_text(prometheus_rule())
