"""What a run is expected to cost: work per row times rows, over the speed of a machine."""

from __future__ import annotations

from torchapl.paper.config import Cost, Experiment
from torchapl.paper.data import DATA_SETS
from torchapl.paper.nets import NETWORKS

# Operations per second of wide layers, and of those where memory decides (work grows with width,
# not its square); seconds that any step takes. One core of a server CPU is fitted to steps at
# widths 1/12, 1/8 and 1; one GPU of the A100 class is not measured.
_CPU = (1.15e11, 3.0e11, 1.0e-3)
_GPU = (4.0e13, 4.0e13, 1.0e-3)
# Steps of the fast ResNet took 0.52 of their time in float32, where the CPU has it.
_BFLOAT16 = 0.5
# To open the data, build the network and write the last files.
_RUN_SECONDS = 0.5
# Of a process that trains: Python, torch and the rest, once for many runs.
START_SECONDS = 5.0


def estimate(experiment: Experiment) -> Cost | None:
    """Return the expected seconds of one run of an experiment, to a factor of two or so.

    Returns:
        None where nobody has said how much work the network is, or how large the data set.

    Example:
        >>> tiny = Experiment("tiny", net="higgs-dnn", epochs=1)
        >>> estimate(tiny).cpu < 10
        True
    """
    work = NETWORKS.get(experiment.net).multiply_adds
    rows = DATA_SETS.get(experiment.data.name).rows
    if work is None or rows is None:
        return None
    if experiment.data.limit is not None:
        rows = min(rows, experiment.data.limit)
    rows *= experiment.epochs
    # Training does six operations for each multiply-add of a forward pass.
    operations = 6 * rows * work * (_BFLOAT16 if experiment.precision == "bfloat16" else 1)
    steps, width = rows / experiment.batch_size, experiment.width
    cpu, gpu = (
        operations * (width**2 / wide + width / narrow) + steps * overhead + _RUN_SECONDS
        for wide, narrow, overhead in (_CPU, _GPU)
    )
    return Cost(cpu=round(cpu, 1), gpu=round(gpu, 1))
