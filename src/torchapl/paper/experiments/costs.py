"""What a run is expected to cost: work per row times rows, over the speed of a machine."""

from __future__ import annotations

from torchapl.paper.config import Cost, Experiment

# Multiply-adds of one forward pass at width 1, in millions; training does six operations for each.
_MULTIPLY_ADDS = {
    "cifar-cnn": 151.0,
    "cifar-cnn-100": 151.0,
    "dropout-cnn": 151.0,
    "nin": 222.0,
    "nin-lin": 222.0,
    "nin-dsn": 224.0,
    "maxout": 1100.0,
    "channel-out": 1100.0,
    "probout": 1100.0,
    "dasnet": 1100.0,
    # Batch norm costs as much again as the convolutions, and more.
    "resnet": 100.0,
    "higgs-dnn": 0.46,
}
ROWS = {
    "cifar10": 50_000,
    "cifar100": 50_000,
    "htautau": 70_000_000,
    "atlas-higgs-2014": 550_000,
    "atlas-higgs-embedded": 22_000,
    "uci-higgs": 10_500_000,
    "uci-susy": 4_500_000,
    "toy-images": 1_000,
    "toy-events": 1_000,
}
# Operations per second of wide layers, and of those where memory decides (work grows with width,
# not its square); seconds that any step takes. One core of a server CPU is fitted to steps at
# widths 1/12, 1/8 and 1; one GPU of the A100 class is not measured.
_CPU = (1.15e11, 3.0e11, 1.0e-3)
_GPU = (4.0e13, 4.0e13, 1.0e-3)


def estimate(experiment: Experiment) -> Cost:
    """Return the expected seconds of one run of an experiment, to a factor of two or so.

    Example:
        >>> tiny = Experiment("tiny", net="higgs-dnn", epochs=1)
        >>> estimate(tiny).cpu < 10
        True
    """
    rows = ROWS.get(experiment.data.name, 50_000)
    if experiment.data.limit is not None:
        rows = min(rows, experiment.data.limit)
    rows *= experiment.epochs
    work = rows * 6e6 * _MULTIPLY_ADDS.get(experiment.net, 151.0)
    steps = rows / experiment.batch_size
    width = experiment.width
    cpu, gpu = (
        work * (width**2 / wide + width / narrow) + steps * overhead
        for wide, narrow, overhead in (_CPU, _GPU)
    )
    return Cost(cpu=round(cpu, 1), gpu=round(gpu, 1))
