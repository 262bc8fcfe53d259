"""Simulated Higgs -> tau tau events, which stand in for those of the paper."""

from __future__ import annotations

from functools import partial

from torchapl.paper.data.catalogue import DATA_SETS, DataSet, EventSet
from torchapl.paper.data.convert import load_events
from torchapl.paper.data.layouts import Layout

# 10 low-level features, then 15 high-level ones; 10 of the paper's 80 million events are its test
# set.
LAYOUT = Layout(
    features=(
        *(f"low_{number}" for number in range(10)),
        *(f"high_{number}" for number in range(15)),
    ),
    names_fixed=False,
    rows=80_000_000,
    test_rows=10_000_000,
    test_divisor=8,
)

DATA_SETS.register(
    DataSet(
        "htautau",
        "Higgs -> tau tau, simulated",
        about="Higgs -> tau tau against Z -> tau tau, 25 features, from `data simulate`",
        load=partial(load_events, "htautau"),
        rows=70_000_000,
        stand_ins={"smoke": "toy-events"},
        citation="P. Baldi, P. Sadowski, D. Whiteson, Enhanced Higgs Boson to tau+ tau- Search "
        "with Deep Learning, Phys. Rev. Lett. 114, 111801 (2015), whose own events are not public",
        files=EventSet(LAYOUT, None, ("htautau.*",)),
    )
)
