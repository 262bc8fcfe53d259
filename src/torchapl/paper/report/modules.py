"""JavaScript modules inside a page: browsers load none from a file on disk beside it."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping

# `from "./chart.js"` and `import "../dom.js"`; a page's modules have names of their own.
_SPECIFIER = re.compile(r'(\bfrom|^import) "\.\.?/(?:[\w-]+/)*([\w-]+)\.js"', re.MULTILINE)


def inline_modules(modules: Mapping[str, str], start: str) -> str:
    """Return script elements that hold some modules and run ``start``, a module that imports them.

    An import map gives each its name, and its text as a data URL: they stay what they are, with
    imports, exports and a scope of their own, and work from ``file://``.

    Args:
        modules: Texts by file name without ``.js``; they import each other by relative paths.
        start: Imports them by name.

    Example:
        >>> page = inline_modules({"a": 'import "./b.js";', "b": ""}, 'import "a";')
        >>> page.splitlines()[1]
        '<script type="module">import "a";</script>'
    """
    imports = {name: _data_url(f"{text}//# sourceURL={name}.js") for name, text in modules.items()}
    return (
        f'<script type="importmap">{json.dumps({"imports": imports})}</script>\n'
        f'<script type="module">{start}</script>'
    )


def _data_url(text: str) -> str:
    named = _SPECIFIER.sub(r'\1 "\2"', text)
    return f"data:text/javascript;charset=utf-8;base64,{base64.b64encode(named.encode()).decode()}"
