"""How to repeat a run: the command that made it, or Python code, and the details of the run."""

import json
from collections.abc import Mapping
from html import escape
from typing import Any

LEFT_OUT = ("moves", "learning", "command")  # shown elsewhere in the report
THREEFRY = "threefry2x32"


def repeat_html(provenance: Mapping[str, Any]) -> str:
    """The command or the code that makes the same draws, then every fact of the run."""
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(_text(value))}</td></tr>'
        for name, value in provenance.items()
        if name not in LEFT_OUT
    )
    command = provenance.get("command")
    how = "this command" if command else "this code"
    return (
        f"<p>With the same versions, {how} makes the same draws, bit for bit:</p>"
        '<pre tabindex="0" role="region" aria-label="How to repeat the run"><code>'
        f"{escape(str(command) if command else code(provenance))}</code></pre>"
        "<details><summary>All details of the run</summary>"
        f'<div class="wide"><table class="facts"><tbody>{rows}</tbody></table></div></details>'
    )


def code(provenance: Mapping[str, Any]) -> str:
    """Python code that repeats the run; the kernel must be the one with the same hash."""
    names = ("num_chains", "num_samples", "num_warmup", "thin", "block")
    options = ", ".join(f"{n}={provenance[n]}" for n in names if provenance.get(n) is not None)
    key, before = _key(provenance)
    wide = provenance.get("dtype") == "float64"
    lines = ["import involutive as inv"]
    if wide:
        lines = ["import jax", 'jax.config.update("jax_enable_x64", True)', *lines]
    name = provenance.get("target", "target")
    mark = str(provenance.get("kernel_hash", ""))[:12]
    learned = provenance.get("learning") or provenance.get("looked")
    lines += [
        *before,
        "",
        f"# target: the density {name!r}; kernel: the same as before (hash {mark}…)",
        *(['kernel = inv.load("proposal.inv", target)  # or learn again'] if learned else []),
        f"draws = inv.sample(kernel, key={key}, {options})",
    ]
    return "\n".join(lines)


def _key(provenance: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The key as an int seed where it is one, else as the data of a key, with what that imports."""
    data = provenance.get("key")
    if data is None:
        return "0", []
    if provenance.get("key_impl") == THREEFRY and len(data) == 2 and data[0] == 0:
        return str(data[1]), []
    imported = ["import jax.numpy as jnp, jax.random as jr"]
    return f"jr.wrap_key_data(jnp.array({list(data)}, jnp.uint32))", imported


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
