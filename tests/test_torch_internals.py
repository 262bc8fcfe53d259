"""What this package uses of torch without torch's promise: the list to go through with a new torch.

The list is complete, because a test compares it with the sources, and another one asks the torch at
hand for every name on it.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest
import torch
from torch import nn

SOURCE = Path(__file__).parents[1] / "src" / "torchapl"

# Name, and who needs it what for.
NAMES = {
    "torch._C._AutoDispatchBelowAutograd": "ops.autograd: calls a kernel below its own autograd",
    "torch._C._are_functorch_transforms_active": "ops.autograd, rivals.maxout: inside torch.func?",
    "torch._foreach_add": "segments: all parameters of a group at once",
    "torch._foreach_add_": "segments",
    "torch._foreach_copy_": "segments",
    "torch._foreach_mul": "segments",
    "torch._foreach_sub": "segments",
    "torch._foreach_norm": "train: the norms of all gradients at once",
    "torch._functorch.utils.enable_single_level_autograd_function": "ops.autograd: in torch.func",
    "torch.autograd.forward_ad._current_level": "functional: forward mode runs the formula",
    "torch.autograd.function._SingleLevelFunction": "ops.autograd: a function of one level",
    "torch.compiler._is_exporting_flag": "functional: exported programs hold the formula",
    "torch.nn.modules.batchnorm._BatchNorm": "surgery, nets: all kinds of batch norm",
    "torch.utils._python_dispatch.TorchDispatchMode": "surgery: what a trace writes to is refused",
    "torch.utils._pytree.TreeSpec": "surgery: the arguments of a call, and how they are nested",
    "torch.utils._pytree.tree_flatten": "surgery: the same",
    "torch.utils._pytree.tree_leaves": "surgery: the tensors in a module's arguments",
    "torch.utils._pytree.tree_map": "surgery, watch: the same, replaced",
}
# Of every module: hooks and places that surgery looks into.
MODULE_NAMES = {
    "_apply",
    "_buffers",
    "_compiled_call_impl",
    "_load_from_state_dict",
    "_load_state_dict_pre_hooks",
    "_modules",
    "_parameters",
}
# Of every operator.
OPERATOR_NAMES = {"_schema"}
# Of others than torch.
FOREIGN = {"_SubParsersAction", "_exit", "_getframe", "_mmap", "_replace", "_torchapl_turned"}
ALIASES = {"nn": "torch.nn", "forward_ad": "torch.autograd.forward_ad"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(path: Path) -> set[str]:
    """Return the private names that a file takes from elsewhere than itself."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch."):
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name for name in full if any(map(is_private, name.split(".")))}
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            text = ast.unparse(node)
            root, _, rest = text.partition(".")
            if root in ("self", "cls", "ctx"):
                continue
            text = f"{ALIASES.get(root, root)}.{rest}"
            found.add(text if text.startswith("torch.") else node.attr)
    # torch._C is on the way to others.
    return {name for name in found if name != "torch._C"}


def test_the_list_is_complete() -> None:
    found = set().union(*(private_names(path) for path in SOURCE.rglob("*.py")))
    assert {name for name in found if not name.startswith("torchapl.")} == (
        set(NAMES) | MODULE_NAMES | OPERATOR_NAMES | FOREIGN
    )


@pytest.mark.parametrize("name", sorted(NAMES))
def test_this_torch_has_it(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    assert hasattr(importlib.import_module(module), attribute)


def test_modules_of_this_torch_have_them() -> None:
    assert set(dir(nn.Linear(1, 1))) >= MODULE_NAMES


def test_an_export_sets_the_flag() -> None:
    class Flag(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1 if torch.compiler._is_exporting_flag else x - 1

    x = torch.zeros(2)
    assert torch.export.export(Flag(), (x,)).module()(x)[0] == 1
    assert torch.compile(Flag(), backend="eager")(x)[0] == -1
