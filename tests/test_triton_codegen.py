"""What the compiler makes of the GPU kernels, read from the code it generates; needs no GPU."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from torchapl.ops.geometry import Collapsed

PATTERNS = {
    "inner > 1": Collapsed(128, 96, 1024, (0,)),
    "inner = 1": Collapsed(128, 98304, 1, (0,)),
}
# Half of a concatenation along the units.
SLICE = {"inner > 1": (2 * 96 * 1024, 1024, 1), "inner = 1": (2 * 98304, 1, 0)}
TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
BITS = {torch.float32: 32, torch.bfloat16: 16, torch.float16: 16, torch.float64: 64}


def _default_run(target: str, dtype: torch.dtype, hinges: int) -> bool:
    """Choose the hardest on every target, and every dtype and number of hinges at least once."""
    return (dtype, hinges) == (torch.bfloat16, 8) or (target, dtype, hinges) in {
        ("sm_80", torch.float64, 10),
        ("sm_90", torch.bfloat16, 10),
        ("sm_90", torch.float16, 2),
        ("sm_100", torch.float32, 5),
        ("gfx942", torch.float32, 1),
    }


CHOICES = [
    pytest.param(
        target,
        dtype,
        hinges,
        id=f"{target}-{str(dtype).removeprefix('torch.')}-{hinges}",
        marks=[] if _default_run(target, dtype, hinges) else [pytest.mark.exhaustive],
    )
    for target in TARGETS
    for dtype in BITS
    for hinges in (1, 2, 5, 8, 10)
]


@pytest.fixture(scope="module")
def codegen(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("TRITON_INTERPRET=1: kernels are interpreted and not compiled")
    path = Path(__file__).parents[1] / "benchmarks" / "triton_codegen.py"
    spec = importlib.util.spec_from_file_location("triton_codegen", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    # dataclasses looks its module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def tiles_moved(code, operation: str) -> float:
    """Return how many tiles a program loads or stores before it computes anything once more."""
    accesses = rf"scf\.(for|yield|if)|tt\.{operation} .*tensor<(\d+)x(\d+)x!tt\.ptr"
    elements, turns = 0, 1
    for control, units, length in re.findall(accesses, code.ir):
        if control == "if":
            break
        if control:
            turns = code.turns if control == "for" else 1
        elif int(length) > 1:
            # Parameters and their sums have one for each unit.
            elements += turns * int(units) * int(length)
    return elements / math.prod(code.tile)


def ptx_bytes(code, operation: str) -> list[int]:
    """Return the bytes of each global load (ld) or store (st) that one thread makes."""
    found = re.findall(rf"\b{operation}\.global\S*?(?:\.v(\d))?\.b(\d+)", code.assembly)
    return [int(vector or 1) * int(bits) // 8 for vector, bits in found]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("target", "dtype", "hinges"), CHOICES)
def test_maps_move_once_and_nothing_spills(codegen, target, dtype, hinges, pattern):
    for kernel, loads in (("forward", 1), ("backward", 2)):
        code = codegen.compile_kernel(kernel, dtype, hinges, PATTERNS[pattern], target)
        assert tiles_moved(code, "load") == loads
        assert tiles_moved(code, "store") == 1
        assert code.spilled == 0
        assert ".local" not in code.assembly
        assert "scratch_" not in code.assembly
        assert "atom" not in code.assembly


@pytest.mark.parametrize(
    ("target", "dtype"), [("sm_80", torch.float32), ("sm_100", torch.bfloat16)], ids=str
)
def test_bytes_of_one_thread(codegen, target, dtype):
    # In the assembly too: whole 16-byte accesses of each map, and two parameters.
    geometry = PATTERNS["inner > 1"]
    for kernel, loads in (("forward", 1), ("backward", 2)):
        code = codegen.compile_kernel(kernel, dtype, 1, geometry, target)
        first_loop = replace(code, assembly=re.split(r"@%p\d+ bra", code.assembly)[0])
        accesses = math.prod(code.tile) // code.threads // code.turns * BITS[dtype] // 8 // 16
        assert sorted(ptx_bytes(first_loop, "ld")) == [4, 4] + [16] * (loads * accesses)
        assert ptx_bytes(first_loop, "st") == [16] * accesses


def test_gradients_nobody_asked_for_cost_nothing(codegen):
    geometry = PATTERNS["inner > 1"]

    def stores(*unwanted: str) -> list[int]:
        code = codegen.compile_kernel("backward", torch.float32, 2, geometry, "sm_80", unwanted)
        return sorted(ptx_bytes(code, "st"))

    # Twice, because what is not finite is computed once more, two elements at a time.
    assert stores() == [4] * 2 * 4 + [8, 16, 16]
    assert stores("da_ptr", "db_ptr") == [16]
    assert stores("dx_ptr", "db_ptr") == [4, 4] * 2
    assert stores("dx_ptr", "da_ptr") == [4, 4]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("kernel", ["forward", "backward", "backward of a slice"])
def test_addresses_have_64_bits(codegen, kernel, pattern):
    geometry = PATTERNS[pattern]
    gradient = SLICE[pattern] if kernel == "backward of a slice" else None
    arguments = (kernel.split()[0], torch.float32, 2, geometry, "sm_80")
    code = codegen.compile_kernel(*arguments, gradient=gradient)
    offsets = re.findall(r"tt\.addptr .* : \S+(?:, #\w+>)?, (\S+)", code.ir)
    assert offsets
    assert all("i64" in offset for offset in offsets), offsets
    # A product of sizes and positions would overflow before it is widened.
    assert not re.findall(r"arith\.muli .* : .*i32.*", code.ir)
    assert re.findall(r"arith\.muli .* : .*i64.*", code.ir)
    # The program's number modulo the blocks, which is below 2**31, is the only 32-bit product.
    narrow = re.findall(r"(?:mul|mad)\.lo\.[su]32.*", code.assembly)
    assert len(narrow) == len(re.findall(r"div\.[su]32", code.assembly)) == 1
    assert re.findall(r"mad\.lo\.s64", code.assembly)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_gradients_with_strides_are_read_once(codegen, pattern):
    choices = [((0, 0, 0), 1), (SLICE[pattern], 2)]
    if pattern == "inner > 1":
        choices.append(((96, 1, 0), 2))
    for gradient, loads in choices:
        arguments = ("backward", torch.bfloat16, 5, PATTERNS[pattern], "sm_80")
        code = codegen.compile_kernel(*arguments, gradient=gradient)
        assert tiles_moved(code, "load") == loads
        assert code.spilled == 0


@pytest.mark.parametrize(
    ("pattern", "each_turn", "additions"),
    # b - x; the elements of a unit in a thread; a tree over the threads of a unit; the search for
    # infinities, which with inner = 1 goes on over the units.
    [("inner > 1", 1, 1 + 3 + 8 + 6 + 1), ("inner = 1", 2, 1 + 32 + 2 + 7)],
)
def test_sums_are_short_chains(codegen, pattern, each_turn, additions):
    code = codegen.compile_kernel("backward", torch.float32, 1, PATTERNS[pattern], "sm_80")
    assert _additions_in_a_row(code.assembly) + (code.turns - 1) * each_turn == additions


def _additions_in_a_row(ptx: str) -> int:
    """Return the most additions on a path through registers and shared memory."""
    depth: dict[str, int] = {}
    for operation, arguments in re.findall(r"^\s+(?:@\S+ )?([a-z][\w.:]*)\s+(.*);", ptx, re.M):
        results, _, operands = arguments.partition("}" if arguments[0] == "{" else ",")
        if operation.startswith("st.shared"):
            results, operands = "%shared", f"%shared, {arguments}"
        elif operation.startswith("ld.shared"):
            operands = "%shared"
        longest = max((depth.get(name, 0) for name in re.findall(r"%\w+", operands)), default=0)
        longest += bool(re.match(r"(?:add|sub|fma)\.\S*f32", operation))
        depth |= dict.fromkeys(re.findall(r"%\w+", results), longest)
    return max(depth.values())


def test_odd_sizes_do_not_spill(codegen):
    # Neither aligned nor a power of two: single elements and a mask for each.
    for geometry in (
        Collapsed(37, 301, 1, (0,)),
        Collapsed(37, 5, 3137, (0,)),
        Collapsed(3, 999, 7, (0,)),
    ):
        for target in ("sm_80", "gfx942"):
            code = codegen.compile_kernel("backward", torch.bfloat16, 5, geometry, target)
            assert code.spilled == 0
