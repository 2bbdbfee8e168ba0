"""Notebooks are executed, and shown with what they printed and drew.

The site shows what a real Jupyter kernel made of them (`make docs`). `make test` runs the same cells without Jupyter,
one after another in one namespace, which takes no server, no port and no further package.
"""

from __future__ import annotations

import ast
import base64
import json
import re
from pathlib import Path

LIMIT = 300  # seconds for a cell: only a hang exceeds them


def cells(path: Path) -> list[tuple[str, str]]:
    """The cells of a notebook: ("markdown" or "code", text)."""
    return [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(path.read_text())["cells"]]


def executed_plainly(path: Path) -> dict[str, object]:
    """Run all code cells in one namespace and return it; the value of a last expression is made into what is shown."""
    names: dict[str, object] = {"__name__": "__main__"}
    for number, (kind, text) in enumerate(cells(path)):
        if kind != "code":
            continue
        body = ast.parse(text, f"{path.name}, cell {number}").body
        last = ast.Expression(body.pop().value) if body and isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), f"{path.name}, cell {number}", "exec"), names)
        if last is not None:
            value = eval(compile(last, f"{path.name}, cell {number}", "eval"), names)
            shown = getattr(value, "_repr_html_", None)
            names["_"] = value if value is None else (shown() if shown else repr(value))
    return names


def executed_by_jupyter(path: Path) -> dict:
    """Run a notebook in a kernel of its own, in a fresh folder, and return it with its outputs."""
    import tempfile

    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        options = {"kernel_name": "python3", "timeout": LIMIT, "resources": {"metadata": {"path": folder}}}
        quiet = ["--IPKernelApp.log_level=40"]  # it would warn that its lines, on loopback, are not encrypted
        NotebookClient(notebook, extra_arguments=quiet, **options).execute()
    return notebook


def as_markdown(notebook: dict, name: str) -> str:
    """Write an executed notebook as a page: texts as they are, code as code, outputs below it."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
        else:
            parts.append(f"```python\n{text}\n```")
            parts += [shown for output in cell["outputs"] if (shown := _shown(output))]
    first, *rest = parts
    file = f"<code>examples/notebooks/{name}</code>"
    note = f'<p class="notebook">A notebook: {file} in the repository. It was run for this page.</p>'
    return "\n\n".join([first, note, *rest]) + "\n"


def _shown(output: dict) -> str:
    """One output: a picture, a table or text; what only concerns the kernel is left out."""
    if output["output_type"] == "stream":
        return _block(output["text"]) if output["name"] == "stdout" else ""
    data = output.get("data", {})
    if "image/svg+xml" in data:
        encoded = base64.b64encode("".join(data["image/svg+xml"]).encode()).decode()
        return _picture("image/svg+xml", encoded)
    if "image/png" in data:
        return _picture("image/png", data["image/png"].replace("\n", ""))
    if "text/html" in data:
        html = re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.DOTALL)
        return '<div class="output">\n' + re.sub(r"\n\s*\n", "\n", html) + "\n</div>"
    return _block(data["text/plain"]) if "text/plain" in data else ""


def _block(text: str | list[str]) -> str:
    return "```text\n" + "".join(text).rstrip("\n") + "\n```"


def _picture(kind: str, encoded: str) -> str:
    return f'<img class="output" alt="What this cell draws" src="data:{kind};base64,{encoded}">'
