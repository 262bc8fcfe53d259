"""Compile the GPU kernels ahead of time and read the generated code; needs no GPU.

Prints registers per thread / spilled bytes / instructions per element:

$ python benchmarks/triton_codegen.py
$ python benchmarks/triton_codegen.py --target sm_90 --hinges 1 5
$ python benchmarks/triton_codegen.py --elements 32    # a trial: 32 per thread in place of 64
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability
from triton.compiler import ASTSource

from torchapl.ops import triton as kernels
from torchapl.ops.geometry import Collapsed

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
KERNELS = ("forward", "backward")
DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,
}
GEOMETRIES = {
    "inner > 1": Collapsed(128, 96, 1024, (0,)),
    "inner = 1": Collapsed(128, 98304, 1, (0,)),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
MAPS = ("y_ptr", "x_ptr", "g_ptr", "dx_ptr")


@dataclass(frozen=True)
class Code:
    """One compiled kernel and what its assembler says about it."""

    ir: str
    assembly: str
    binary: bytes
    tile: tuple[int, int]
    threads: int
    # Of the main loop; and multiplications per element where that many are known.
    turns: int
    products: int
    registers: int
    spilled: int


def compile_kernel(
    kernel: str,
    dtype: torch.dtype,
    hinges: int,
    geometry: Collapsed,
    target: str,
    unwanted: tuple[str, ...] = (),
    gradient: tuple[int, int, int] | None = None,
) -> Code:
    """Compile as a launch with these sizes would, with aligned tensors and float32 parameters.

    ``gradient`` has the strides of g along (outer, units, inner) if it does not lie as x does.
    """
    gpu = TARGETS[target]
    compute = torch.promote_types(dtype, torch.float32)
    function = kernels.kernel(kernel, hinges, compute)
    hip = gpu.backend == "hip"
    _, settings = kernels.launch_settings(geometry, compute, hinges, gpu.warp_size)
    strides = zip(("g_outer", "g_units", "g_inner"), gradient or (None,) * 3, strict=True)
    settings |= {"SCALAR_G": gradient == (0, 0, 0), **dict(strides)}
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    attributes: dict[tuple[int], list[list[Any]]] = {}
    for place, name in enumerate(function.arg_names):
        value = settings.get(name)
        absent = name in unwanted or (value is None and not name.endswith("_ptr"))
        if absent or name.isupper() or (value == 1 and name != "outer"):
            signature[name], constants[name] = "constexpr", None if absent else value
            continue
        if name.endswith("_ptr"):
            signature[name] = f"*{NAMES[dtype if name in MAPS else compute]}"
        else:
            signature[name] = "i32" if value < 2**31 else "i64"
        if name.endswith("_ptr") or (value % 16 == 0 and name != "outer"):
            attributes[(place,)] = [["tt.divisibility", 16]]

    source = ASTSource(function, signature, constants, attributes)
    options = {name: settings[name] for name in ("num_warps", "maxnreg") if name in settings}
    asm = triton.compile(source, target=gpu, options=options).asm
    tile = (settings["UNITS"], settings["OUTER"] * settings["INNER"])
    threads = settings["num_warps"] * gpu.warp_size
    turns = hinges
    if "CHUNK" in settings:
        wide = settings["WIDE"]
        if kernel == "backward" and dtype.itemsize > 2:
            wide = max(1, wide // 2)
        if kernel == "backward" and (dtype.itemsize > 4 or "da_ptr" in unwanted):
            wide = 1
        turns = tile[1] // (wide * settings["CHUNK"])
    products = hinges if kernel == "forward" else 0
    assembly = asm["amdgcn" if hip else "ptx"]
    read = _read_amdgcn(assembly) if hip else _read_ptx(assembly, gpu)
    binary = asm["hsaco" if hip else "cubin"]
    return Code(asm["ttgir"], assembly, binary, tile, threads, turns, products, *read)


def _read_ptx(ptx: str, gpu: GPUTarget) -> tuple[int, int]:
    """Return registers and bytes on the stack, from NVIDIA's assembler."""
    ptxas = Path(get_ptxas(gpu.arch).path)
    with tempfile.TemporaryDirectory() as folder:
        source, binary = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx)
        arch = f"--gpu-name={sm_arch_from_capability(gpu.arch)}"
        said = _run(ptxas, "-v", arch, source, "-o", binary)
    spills = re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", said)
    registers = re.search(r"Used (\d+) registers", said)
    if not registers or len(spills) != 3:
        raise RuntimeError(f"ptxas said nothing about registers: {said}")
    return int(registers[1]), sum(map(int, spills))


def _read_amdgcn(assembly: str) -> tuple[int, int]:
    def field(name: str) -> int:
        return int(re.findall(rf"\.{name}:\s+(\d+)", assembly)[0])

    spilled = sum(
        field(name)
        for name in ("vgpr_spill_count", "sgpr_spill_count", "private_segment_fixed_size")
    )
    return field("vgpr_count"), spilled


def instructions_per_element(code: Code, target: str) -> float:
    """Return the machine instructions that a thread executes for each of its elements.

    Of an AMD GPU the vector instructions alone: all others issue beside them. What computes a tile
    once more after an infinity does not count.
    """
    if target.startswith("gfx"):
        listing, instruction = code.assembly, r"\t([vs]_.*)"
    else:
        nvdisasm = Path(get_ptxas(TARGETS[target].arch).path).parent / "nvdisasm"
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(code.binary)
            file.flush()
            listing = _run(nvdisasm, "-c", file.name)
        instruction = r"\s+/\*[0-9a-f]{4,}\*/\s+(?!NOP)(\S.*)"
    labels: dict[str, int] = {}
    jumps: list[tuple[int, str]] = []
    fused = [0]
    for line in listing.splitlines():
        if label := re.match(r"(\.L\w+):", line):
            labels[label[1]] = len(fused) - 1
        elif found := re.match(instruction, line):
            if not found[1].startswith("s_"):
                fused.append(fused[-1] + ("fma" in found[1]) * (2 if "_pk_" in found[1] else 1))
            if jump := re.search(r"(?:BRA|branch).*?(\.L\w+)|@\S+ (EXIT)", found[1]):
                jumps.append((len(fused) - 1, jump[1] or jump[2]))
    labels["EXIT"] = count = len(fused) - 1

    loops: list[tuple[int, int]] = []
    for start, end in sorted((labels[label], at) for at, label in jumps if labels[label] < at - 1):
        if loops and start < loops[-1][1]:
            loops[-1] = (loops[-1][0], max(end, loops[-1][1]))
        else:
            loops.append((start, end))
    if len(loops) > 1:
        (_, before), (start, end) = loops[:2]
        between = [(at, labels[label]) for at, label in jumps if before < at <= start]
        # The last jump over the second loop passes by all that belongs to it.
        leave, land = max((jump for jump in between if jump[1] >= end), default=(0, 0))
        count -= land - leave
    share = math.prod(code.tile) / code.threads
    if not loops:
        return count / share
    start, end = loops[0]
    turns = float(code.turns)
    if target.startswith("gfx") and code.products:
        # AMD's compiler may put two turns into one.
        turns = code.products * share / (fused[end] - fused[start])
    return (count + (turns - 1) * (end - start)) / share


def _run(*command: object) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--kernel", nargs="+", choices=KERNELS, default=list(KERNELS))
    parser.add_argument("--hinges", nargs="+", type=int, default=[1, 2, 5, 8, 10])
    parser.add_argument("--elements", type=int, help="trial: elements per thread")
    parser.add_argument("--few", type=int, help="trial: up to that many float32 hinges are few")
    parser.add_argument("--gradient", nargs=3, type=int, help="strides of its own, such as 0 0 0")
    chosen = parser.parse_args()
    if chosen.elements:
        kernels.FEW_ELEMENTS = chosen.elements
    if chosen.few is not None:
        kernels.FEW_BYTES = 4 * chosen.few
    print("| kernel | pattern | dtype | S |", " | ".join(chosen.target), "|")
    print("|---" * (4 + len(chosen.target)) + "|")
    for kernel, (pattern, geometry), dtype, hinges in itertools.product(
        chosen.kernel, GEOMETRIES.items(), chosen.dtype, chosen.hinges
    ):
        cells = []
        for target in chosen.target:
            arguments = (kernel, DTYPES[dtype], hinges, geometry, target)
            code = compile_kernel(*arguments, gradient=chosen.gradient and tuple(chosen.gradient))
            count = instructions_per_element(code, target)
            cells.append(f"{code.registers} / {code.spilled} / {count:.1f}")
        print("|", " | ".join(map(str, (kernel, pattern, dtype, hinges, *cells))), "|", flush=True)


if __name__ == "__main__":
    main()
