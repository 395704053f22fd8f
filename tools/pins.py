"""Write constraints.txt from the packages installed in .venv-3.11 and .venv-3.12.

`make pins` installs the newest versions the ranges in pyproject.toml allow into both, then runs
this. Python 3.11 is the last that old jax, ArviZ and PyMC support, so pins differ at that line.
"""

import re
import subprocess
import sys
from pathlib import Path

OLD, NEW = '; python_version < "3.12"', '; python_version >= "3.12"'


def freeze(venv: Path) -> dict[str, str]:
    """Return the version of every package in `venv` but the project itself."""
    command = [venv / "bin/python", "-m", "pip", "freeze", "--exclude-editable"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    # A local label such as +cpu names one index's build, not a version.
    pairs = (re.fullmatch(r"([\w.-]+)==([\w.!]+)(?:\+\S+)?", line) for line in lines)
    return {re.sub(r"[-_.]+", "-", p[1]).lower(): p[2] for p in pairs if p}


def merge(old: dict[str, str], new: dict[str, str]) -> list[str]:
    """Return one line a package where the two agree, and one a Python where they do not."""
    lines = []
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) == new.get(name):
            lines.append(f"{name}=={old[name]}")
            continue
        if name in old:
            lines.append(f"{name}=={old[name]}{OLD}")
        if name in new:
            lines.append(f"{name}=={new[name]}{NEW}")
    return lines


if __name__ == "__main__":
    old, new = (freeze(Path(f".venv-{version}")) for version in ("3.11", "3.12"))
    Path("constraints.txt").write_text("\n".join(merge(old, new)) + "\n")
    sys.stdout.write(f"constraints.txt: {len(old)} packages on 3.11, {len(new)} on 3.12\n")
