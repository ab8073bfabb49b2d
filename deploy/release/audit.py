"""
`make audit`: known vulnerabilities in the locked versions, by pip-audit.

Exit code 1 when there is one. Where pip-audit's source cannot be reached, that is said in one line and is no failure: a
build without the internet must not depend on it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

AUDIT = ["--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json", "--desc", "off"]
TIMEOUT_S = 300


def findings(report: dict[str, Any]) -> tuple[list[str], int]:
    """(a line for each known vulnerability, how many packages were looked up) of pip-audit's JSON."""
    looked_up = [package for package in report["dependencies"] if "skip_reason" not in package]
    lines = [
        f"{package['name']} {package['version']}: {vulnerability['id']}, "
        f"fixed in {', '.join(vulnerability['fix_versions']) or 'no version yet'}"
        for package in looked_up
        for vulnerability in package["vulns"]
    ]
    return lines, len(looked_up)


def main(lock: str) -> int:
    command = [sys.executable, "-m", "pip_audit", "-r", lock, *AUDIT]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        lines, count = findings(json.loads(done.stdout))
    except (subprocess.TimeoutExpired, ValueError):
        lines, count = [], 0
    if count == 0:
        print(f"audit: not done, pip-audit's source of advisories does not answer here ({lock})")
        return 0
    print("\n".join(lines) or f"audit: no known vulnerability in the {count} packages of {lock}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
