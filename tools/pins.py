"""Write constraints.txt: the newest versions that the ranges in pyproject.toml allow.

Python 3.11 is the last that old jax, ArviZ and PyMC support, so pins differ at that line. Each
side is resolved for the oldest patch of its Python, so that a distribution's 3.11.2 can install
them too.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
OLD, NEW = '; python_version < "3.12"', '; python_version >= "3.12"'


def find_pythons() -> dict[str, str]:
    """Return the interpreter of each supported Python on this machine."""
    lines = subprocess.run([ROOT / "tools/pythons"], capture_output=True, text=True).stdout
    return dict(line.split(" ", 1) for line in lines.splitlines())


def resolve(python: str, version: str, requirements: list[str]) -> dict[str, str]:
    """Return what pip would install for `requirements` on Python `version`."""
    # pip reads markers from the interpreter it runs on, hence `python` of the same minor version.
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [python, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--python-version", version, "--only-binary", ":all:"]
        command += ["--target", folder, "--report", str(report), *requirements]
        subprocess.run(command, check=True, cwd=ROOT)
        found = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    # A local label such as +cpu names one index's build, not a version.
    pins = {normalise(item["name"]): item["version"].partition("+")[0] for item in found}
    del pins["involutive"]
    return pins


def normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


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


def main() -> None:
    pythons = find_pythons()
    if missing := {"3.11", "3.12"} - pythons.keys():
        sys.exit(f"pins needs Python 3.11 and 3.12, missing {', '.join(sorted(missing))}")
    requirements = [".[all]", *sys.argv[1:]]
    old, new = (resolve(pythons[v], f"{v}.0", requirements) for v in ("3.11", "3.12"))
    (ROOT / "constraints.txt").write_text("\n".join(merge(old, new)) + "\n")
    print(f"constraints.txt: {len(old)} packages on 3.11, {len(new)} on 3.12")


if __name__ == "__main__":
    main()
