"""Which units a model has and what they see on batches, with the model left as it was."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map

from torchapl.modules import APL, AffineAPL, Unit, inner_unit

Inputs = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]


def named_units(model: nn.Module, *, remove_duplicate: bool = True) -> Iterator[tuple[str, Unit]]:
    """Yield the layers of units with their names, an affine one as a whole.

    Args:
        model: Holds units somewhere, or is one.
        remove_duplicate: A layer with several names has the first alone, as in
            ``nn.Module.named_modules``.
    """
    inside = {id(module.unit) for module in model.modules() if isinstance(module, AffineAPL)}
    for name, module in model.named_modules(remove_duplicate=remove_duplicate):
        if isinstance(module, APL | AffineAPL) and id(module) not in inside:
            yield name, module


def watch(model: nn.Module, batches: Iterable[Inputs], see: Callable[[str, Tensor], None]) -> None:
    """Run a model and show the input of every unit, each time it is called.

    Args:
        model: Is run in evaluation mode without gradients, and is afterwards as it was.
        batches: What a data loader gives. Of a tuple or list the model gets as many elements as its
            ``forward`` requires, at least one, so that the labels of ``(x, y)`` stay out; of a dict
            the entries that ``forward`` has parameters for.
        see: Gets the name of the layer and its input.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 8), APL(8))
        >>> batch = torch.randn(2, 4), torch.zeros(2)
        >>> watch(model, [batch], lambda name, input: print(name, input.shape))
        1 torch.Size([2, 8])
    """
    if isinstance(batches, Tensor | Mapping):
        raise TypeError(
            f"batches must be an iterable of batches, such as [batch], got a "
            f"{type(batches).__name__}"
        )
    units = dict(named_units(model))
    with untouched(model), hooked(units, lambda name, input, output: see(name, input)):
        for batch in batches:
            call(model, _without_labels(model, batch))


def by_unit(unit: Unit, input: Tensor) -> Tensor:
    """Return the input of a layer as ``(*unit_shape, samples)``."""
    inner = inner_unit(unit)
    shape = inner.unit_shape
    start = inner.unit_dim % input.dim() if shape else 0
    axes = list(range(start, start + len(shape)))
    others = [axis for axis in range(input.dim()) if axis not in axes]
    samples = math.prod(input.shape[axis] for axis in others)
    return input.permute(axes + others).reshape(*shape, samples)


def call(model: nn.Module, inputs: Inputs) -> Any:
    """Run the model on copies of its inputs, which it may overwrite.

    Args:
        model: Is run in the mode it is in.
        inputs: A tensor, a tuple of arguments, or a dict of keyword arguments. A tuple longer than
            ``forward`` takes is a batch ``(x, y)`` of a data loader: the labels stay out.
    """
    copies = tree_map(_copy, inputs)
    if isinstance(copies, Tensor):
        return model(copies)
    if isinstance(copies, Mapping):
        return model(**copies)
    if isinstance(copies, (tuple, list)):
        return model(*(copies if _takes(model, copies) else _without_labels(model, copies)))
    raise TypeError(
        "example_inputs must be a tensor, a tuple of arguments or a dict of keyword arguments, got "
        f"{type(inputs).__name__}"
    )


class Difference(NamedTuple):
    """Of the outputs of a model in two runs."""

    largest: float
    size: float  # of the largest output in the first run
    rounding: float  # the part of it that may be rounding alone


def difference(before: Any, after: Any) -> Difference:
    """Compare what a model returned in two runs."""
    firsts, seconds = tensors_of(before), tensors_of(after)
    shapes = [[tensor.shape for tensor in tensors] for tensors in (firsts, seconds)]
    if type(before) is not type(after) or shapes[0] != shapes[1]:
        return Difference(float("inf"), 1.0, 0.0)
    largest, size, rounding = 0.0, 0.0, 1e-4
    for first, second in zip(firsts, seconds, strict=True):
        if first.numel() == 0:
            continue
        gap = (first.double() - second.double()).abs()
        # Infinities and NaN in the same places are no difference, elsewhere they are infinite.
        same = (first == second) | (first.isnan() & second.isnan())
        gap = torch.where(same, 0.0, gap.nan_to_num(torch.inf, torch.inf))
        largest = max(largest, float(gap.max()))
        size = max(size, float(first.double().nan_to_num(0.0, 0.0, 0.0).abs().max()))
        if first.dtype in (torch.float16, torch.bfloat16):
            rounding = 2e-2
    return Difference(largest, size, rounding)


def tensors_of(value: Any, depth: int = 3) -> list[Tensor]:
    """Return the tensors in a model's output, also those in attributes of an object."""
    tensors: list[Tensor] = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, Tensor):
            tensors.append(torch.view_as_real(leaf) if leaf.is_complex() else leaf)
        elif depth and hasattr(leaf, "__dict__") and not callable(leaf):
            # A dataclass or a distribution.
            tensors += tensors_of(dict(vars(leaf)), depth - 1)
    return tensors


@contextmanager
def hooked(
    modules: Mapping[str, nn.Module], see: Callable[[str, Any, Any], None]
) -> Iterator[None]:
    """Show name, input and output of modules whenever they have been called."""

    def hook_of(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> None:
            see(name, args[0] if args else kwargs.get("input"), output)

        return hook

    with ExitStack() as stack:
        for name, module in modules.items():
            # After the call, so that a unit refuses what does not fit with its own reason.
            handle = module.register_forward_hook(hook_of(name), with_kwargs=True)
            stack.callback(handle.remove)
        stack.enter_context(uncompiled())
        yield


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Evaluate without gradients; put back modes, buffers and random state at the end."""
    buffers = [
        (module, name, buffer, buffer.detach().clone())
        for module in model.modules()
        for name, buffer in module._buffers.items()
        # The first pass makes the buffers of lazy modules; there is nothing to put back.
        if buffer is not None and not is_lazy(buffer)
    ]
    devices = {tensor.device for tensor in (*model.parameters(), *model.buffers())}
    try:
        with same_modes(model), same_random_state(devices), torch.no_grad():
            model.eval()
            yield
    finally:
        _reshard(model)
        with torch.no_grad():
            for module, name, buffer, before in buffers:
                # Forward may have filled the tensor or put another in its place.
                module._buffers[name] = buffer
                # Only where needed: a copy would count as a change of the buffer's version. Sparse
                # tensors cannot be compared.
                if buffer.layout != torch.strided or not torch.equal(buffer, before):
                    buffer.copy_(before)


@contextmanager
def same_modes(model: nn.Module) -> Iterator[None]:
    """Put every module back to training or evaluation at the end."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def same_random_state(devices: Iterable[torch.device]) -> AbstractContextManager[None]:
    """Put back the random state of the CPU and of these devices at the end."""
    accelerators = [device for device in set(devices) if device.type not in ("cpu", "meta")]
    kind = accelerators[0].type if accelerators else "cuda"
    return torch.random.fork_rng(accelerators, device_type=kind)


def uncompiled() -> AbstractContextManager[Any]:
    """Let a compiled model run as it is written: what is compiled calls no hooks."""
    # Where dynamo was never imported nothing is compiled, and importing it takes seconds.
    return (
        torch.compiler.set_stance("force_eager")
        if "torch._dynamo" in sys.modules
        else nullcontext()
    )


def _reshard(model: nn.Module) -> None:
    """Let FSDP give up the parameters that it keeps whole from a forward to its backward pass.

    There is no backward pass after a look, and what is written into whole parameters gets lost.
    """
    fsdp = sys.modules.get("torch.distributed.fsdp")
    for module in model.modules():
        if fsdp is not None and isinstance(module, fsdp.FSDPModule):
            module.reshard()


def _without_labels(model: nn.Module, batch: Inputs) -> Inputs:
    """Return what a model needs of a batch of a data loader."""
    parameters = inspect.signature(model.forward).parameters
    if isinstance(batch, (tuple, list)):
        positional = (p for p in parameters.values() if p.kind <= p.POSITIONAL_OR_KEYWORD)
        required = sum(parameter.default is parameter.empty for parameter in positional)
        return tuple(batch[: max(required, 1)])
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if isinstance(batch, Mapping) and not takes_any:
        return {name: value for name, value in batch.items() if name in parameters}
    return batch


def _takes(model: nn.Module, arguments: Sequence[Any]) -> bool:
    try:
        inspect.signature(model.forward).bind(*arguments)
    except TypeError:
        return False
    return True


def _copy(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf
