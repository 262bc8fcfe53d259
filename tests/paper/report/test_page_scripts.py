from __future__ import annotations

import base64
import json
import re

from torchapl.paper.report.modules import inline_modules


def texts(page: str) -> dict[str, str]:
    """Return the modules of a page as the browser gets them."""
    (stored,) = re.findall(r'<script type="importmap">(.*)</script>', page)
    return {
        name: base64.b64decode(url.partition("base64,")[2]).decode()
        for name, url in json.loads(stored)["imports"].items()
    }


def test_relative_imports_become_names() -> None:
    source = (
        'import { a,\n  b } from "./one.js";\nimport "../two-three.js";\n'
        'export * from "./sections/four.js";\nconst kept = \'import "./one.js" from "./one.js\';\n'
    )
    page = inline_modules({"main": source}, "")
    lines = texts(page)["main"].splitlines()
    assert lines[1:4] == ['  b } from "one";', 'import "two-three";', 'export * from "four";']
    assert lines[-1] == "//# sourceURL=main.js"


def test_text_is_kept_and_cannot_end_the_element() -> None:
    source = 'export const minus = "\N{MINUS SIGN}</script><script>alert(1)";\n'
    page = inline_modules({"main": source}, "")
    assert page.count("</script>") == 2
    assert texts(page)["main"].startswith(source)
