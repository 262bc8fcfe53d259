"""Mark code with prompts as a session of Python: a hook of mkdocs.

Then its prompts and outputs are known to the style sheet, which keeps them out of what is copied.
"""

from __future__ import annotations

import re
from typing import Any

_SESSION = re.compile(r"^```python\n(?=>>> )", re.MULTILINE)


def on_page_markdown(markdown: str, **others: Any) -> str:
    """Return a page whose sessions are called so."""
    return _SESSION.sub("```pycon\n", markdown)
