"""Fail if a page of the site loads anything from another host: `hosts.py FOLDER`."""

import re
import sys
from pathlib import Path

# Links may lead elsewhere; what a browser loads by itself may not.
LOADED = re.compile(
    r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href)=[\"'](?:https?:)?//"
    r"|@import\s+(?:url\()?[\"']?(?:https?:)?//|url\([\"']?(?:https?:)?//"
    r"|\bimport\(\s*[\"']https?://|\bimportScripts\([\"']https?://",
    re.IGNORECASE,
)


def loads_elsewhere(folder: Path) -> list[str]:
    """Return what the pages, scripts and styles of a folder load from other hosts."""
    return [
        f"{path}: {found[0]}"
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".html", ".js", ".css")
        for found in LOADED.finditer(path.read_text(encoding="utf-8"))
    ]


if __name__ == "__main__":
    sys.exit("\n".join(loads_elsewhere(Path(sys.argv[1]))) or 0)
