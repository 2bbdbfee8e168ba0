"""What MkDocs does beside its own work: pages from outside `docs/`, links to them, lists of pages, notebooks.

MkDocs calls the functions `on_...` (`hooks` in mkdocs.yml). The sources stay where readers of the repository look for
them and link to each other as files do; here these links become links between pages.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from posixpath import relpath

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from website.notebooks import as_markdown, executed_by_jupyter  # noqa: E402

# Pages of the site whose sources lie elsewhere in the repository.
ELSEWHERE = {
    "benchmarks/RESULTS.md": "benchmarks.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "examples/README.md": "examples/index.md",
    "examples/flower-ssca/README.md": "examples/flower-ssca.md",
}
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\[\]]*\])*\])\(([^)\s]+)\)")
FENCE = re.compile(r"^(```+).*?^\1[ ]*$", re.DOTALL | re.MULTILINE)
BUTTONS = re.compile(r"^(\[[^\]]+\]\([^)]+\)) · (\[[^\]]+\]\([^)]+\))$", re.MULTILINE)
MARKED = re.compile(r"^```(python|sh) \w+$", re.MULTILINE)  # `sh terminal`, `sh fails`: for the tests that run them


def sources() -> dict[str, str]:
    """All pages of the site, {path in the repository: path in the site}, in a fixed order."""
    pages = {path: path.removeprefix("docs/") for path in _files("docs", ".md")}
    pages |= ELSEWHERE
    pages |= {path: path.removesuffix(".py") + ".md" for path in _files("examples", ".py") if path.count("/") == 1}
    pages |= {path: path.removesuffix(".ipynb") + ".md" for path in _files("examples/notebooks", ".ipynb")}
    return pages


def nav_of(nav: list, pages: dict[str, str], named: str = "") -> list:
    """Fill in the lists that mkdocs.yml leaves open: `adr/*` stands for all pages of a folder, by name.

    `*` stands for pages of `docs/` itself that mkdocs.yml does not name (`named` is its text), so that none is lost.
    """
    filled: list = []
    for entry in nav:
        if entry == "*":
            filled += sorted(page for page in pages.values() if "/" not in page and f" {page}\n" not in named)
        elif isinstance(entry, str) and entry.endswith("/*"):
            folder = entry.removesuffix("*")
            filled += sorted(
                page
                for page in pages.values()
                if page.startswith(folder) and page.count("/") == folder.count("/") and page not in _indexes(folder)
            )
        elif isinstance(entry, dict):
            parts = {title: nav_of(to, pages, named) if isinstance(to, list) else to for title, to in entry.items()}
            filled += [{title: to} for title, to in parts.items() if to]
        else:
            filled.append(entry)
    return filled


def linked(text: str, source: str, pages: dict[str, str]) -> str:
    """Turn the links of one source into links between pages; what has no page (code, tests) keeps its words alone."""
    page, folder = pages[source], os.path.dirname(source)

    def turn(match: re.Match[str]) -> str:
        words, target = match.groups()
        path, _, place = target.partition("#")
        if not path or re.match(r"[a-z]+:", target):
            return match[0]
        reached = os.path.normpath(os.path.join(folder, path))
        candidates = (reached, f"{reached}/README.md", f"{reached}/index.md")
        found = next((pages[name] for name in candidates if name in pages), None)
        if found is None and reached.startswith("docs/") and (ROOT / reached).is_file():
            found = reached.removeprefix("docs/")  # a picture
        if found is None:
            return words[1:-1] if not words.startswith("!") else match[0]
        return f"{words}({relpath(found, os.path.dirname(page) or '.')}{'#' + place if place else ''})"

    parts, last = [], 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(turn, text[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*parts, LINK.sub(turn, text[last:])])


def text_of(source: str) -> str:
    """What a page says, in Markdown: a script is its own docstring and code, a notebook its cells and their outputs."""
    path = ROOT / source
    if source.endswith(".py"):
        code = path.read_text()
        story = re.match(r'"""(.*?)"""', code, re.DOTALL)[1]
        title, _, rest = story.partition("\n")
        rest = re.sub(r"docs/([\w-]+\.md)", r"[\1](../docs/\1)", rest)
        return f"# {path.stem.replace('_', ' ').capitalize()}\n\n{title}\n{rest}\n\n```python\n{code}```\n"
    if source.endswith(".ipynb"):
        return as_markdown(executed_by_jupyter(path), f"{path.name}")
    return MARKED.sub(r"```\1", path.read_text())


def on_config(config):
    """Fill the lists of pages in."""
    config.nav = nav_of(config.nav, sources(), (ROOT / "mkdocs.yml").read_text())
    return config


def on_files(files, config):
    """Add the pages whose sources lie elsewhere."""
    from mkdocs.structure.files import File

    for source, page in sources().items():
        if not source.startswith("docs/"):
            files.append(File.generated(config, page, content=text_of(source)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turn links between files into links between pages; on the first page a line of two links becomes two buttons."""
    pages = sources()
    source = next(name for name, place in pages.items() if place == page.file.src_uri)
    text = linked(MARKED.sub(r"```\1", markdown), source, pages)
    if source == "docs/index.md":
        page.meta["hide"] = ["navigation", "toc"]
        text = BUTTONS.sub(r"\1{ .md-button .md-button--primary } \2{ .md-button }", text)
    if source == "docs/adr/index.md":
        text += "\n" + "".join(f"- [{_title(name)}]({page})\n" for name, page in _decisions(pages))
    return text


def _decisions(pages: dict[str, str]) -> list[tuple[str, str]]:
    return [(name, page.removeprefix("adr/")) for name, page in pages.items() if re.match(r"adr/\d", page)]


def _title(source: str) -> str:
    return (ROOT / source).read_text().partition("\n")[0].removeprefix("# ").replace(".", "\\.", 1)


def _files(folder: str, ending: str) -> list[str]:
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob(f"*{ending}"))


def _indexes(folder: str) -> tuple[str, str]:
    return f"{folder}README.md", f"{folder}index.md"
