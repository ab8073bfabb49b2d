"""
`make demo`: a daemon on the small vault beside this file, two questions, and what to do next. Leaves nothing running.

It uses the command line only, as a person would.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

VAULT = Path(__file__).resolve().parent / "vault"
QUESTIONS = (
    ("How are calls to a carrier retried now?", "The answer changed in September; the old note is still there."),
    (
        "Who owns the project that sends events out of the database?",
        "No note says it in these words: one describes the project, and a link leads to the person.",
    ),
)


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="recalld-demo-", dir="/tmp") as folder:
        environment = {**os.environ, "RECALLD_DATA": f"{folder}/data", "RECALLD_RUNTIME": f"{folder}/run"}
        environment.pop("RECALLD_DEBUG", None)
        recalld = [sys.executable, "-P", "-m", "recalld.clients.cli"]

        def run(*arguments: str, check: bool = True) -> None:
            subprocess.run([*recalld, *arguments], env=environment, check=check)

        say(f"Starting recalld on {VAULT} ({len(list(VAULT.rglob('*.md')))} notes)")
        try:
            run("up", "--detach", str(VAULT))
            say("Indexing")
            run("index")
            for question, remark in QUESTIONS:
                say(f'Asking: "{question}"', remark)
                run("ask", "-k", "3", question)
        except subprocess.CalledProcessError as error:
            print(f"the demo stopped: {' '.join(error.cmd[3:])} ended with {error.returncode}", file=sys.stderr)
            return 1
        finally:
            run("stop", check=False)
    command = Path(sys.executable).parent / "recalld"
    say("That is it. Nothing is left running.")
    print(f'Your own notes:   {command} up ~/notes         (then ask in another terminal: {command} ask "…")')
    print(f"Your agent:       {command} install claude     (or codex, gemini, cursor, vscode, opencode …)")
    print(f"Always there:     {command} service install")
    return 0


def say(title: str, remark: str = "") -> None:
    print(f"\n== {title}", flush=True)
    if remark:
        print(f"   ({remark})", flush=True)


if __name__ == "__main__":
    sys.exit(main())
