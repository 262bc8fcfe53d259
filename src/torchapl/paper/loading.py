"""Python files of one's own that register activations, networks, data sets and experiments."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

_PREFIX = "torchapl_loaded_"
_loaded: set[Path] = set()


def load(files: Iterable[Path]) -> None:
    """Run Python files, each once in this process, for what they register.

    A file may import others of its folder.

    Args:
        files: Their paths.

    Raises:
        ValueError: If there is no such file, or it fails; the message says how.
    """
    for file in files:
        path = file.resolve()
        if path in _loaded:
            continue
        spec = importlib.util.spec_from_file_location(f"{_PREFIX}{path.stem}", path)
        if not path.is_file() or spec is None or spec.loader is None:
            raise ValueError(f"--load needs a Python file, got {file}")
        module = importlib.util.module_from_spec(spec)
        # Dataclasses look their module up while they are made.
        sys.modules[spec.name] = module
        sys.path.insert(0, str(path.parent))
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[spec.name]
            raise ValueError(f"{file} failed: {type(error).__name__}: {error}") from error
        finally:
            sys.path.remove(str(path.parent))
        _loaded.add(path)
