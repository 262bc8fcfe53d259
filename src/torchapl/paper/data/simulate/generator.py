"""Proton collisions by Pythia 8: first the tau pairs, then the surroundings of those that matter.

Taus are left undecayed (see :mod:`.taus`), and collisions are kept as partons: only those whose
leptons the detector accepts, one in four to eight, are worth the time of making hadrons and jets.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from torchapl.paper.data.simulate.kinematics import Array, mass
from torchapl.paper.data.simulate.taus import Spin, higgs_spin, z_spin

if TYPE_CHECKING:
    from pythia8mc import Event, Pythia, Vec4

Process = Literal["signal", "background"]

MAX_JETS = 10
JET_RADIUS = 0.4
JET_MIN_PT = 15.0
# The detector's outer edge; what leaves beyond it is lost.
MAX_ETA = 5.0
_MAX_FAILURES = 100

_COMMON = (
    "Print:quiet = on",
    "Next:numberShowEvent = 0",
    "Beams:idA = 2212",
    "Beams:idB = 2212",
    "Beams:eCM = 8000.",
    "15:mayDecay = off",
    # Hadrons are made on request, after the taus have been looked at.
    "HadronLevel:all = off",
    "Random:setSeed = on",
)
_PROCESS: dict[Process, Sequence[str]] = {
    "signal": (
        "HiggsSM:gg2H = on",
        "25:m0 = 125.",
        "25:onMode = off",
        "25:onIfMatch = 15 -15",
    ),
    "background": (
        "WeakSingleBoson:ffbar2gmZ = on",
        "WeakZ0:gmZmode = 0",
        "23:onMode = off",
        "23:onIfMatch = 15 -15",
        # Lighter pairs practically never pass the lepton thresholds.
        "PhaseSpace:mHatMin = 60.",
    ),
}


@dataclass(frozen=True)
class Pairs:
    """Tau pairs before their decay; momenta ``(px, py, pz, E)`` in GeV.

    Attributes:
        minus: Momenta of the tau-, ``(n, 4)``.
        plus: Momenta of the tau+, ``(n, 4)``.
        quark: Signed flavour of the parton moving along +z (21 for a gluon), ``(n,)``.
        cosine: Cosine between the quark and the tau- in the frame of the pair, ``(n,)``.
        events: Pythia's records of the collisions, as partons.
    """

    minus: Array
    plus: Array
    quark: NDArray[np.int64]
    cosine: Array
    events: Sequence[Event]

    def spin(self) -> Spin:
        """Spin state of the pairs, from the process that made them."""
        if self.quark[0] == 21:
            return higgs_spin(len(self.quark))
        up_type = np.abs(self.quark) % 2 == 0
        return z_spin(mass(self.minus + self.plus), self.cosine, up_type)


@dataclass(frozen=True)
class Surroundings:
    """What is visible in an event beside the tau pair.

    Attributes:
        jets: Momenta ``(px, py, pz, E)`` of the jets above ``JET_MIN_PT`` by falling pT,
            zero-padded, ``(n, MAX_JETS, 4)``.
        recoil: Vector sum ``(px, py)`` of everything, ``(n, 2)``.
        activity: Scalar sum of the pT of all clusters of any pT, ``(n,)``.
    """

    jets: Array
    recoil: Array
    activity: Array


def import_pythia() -> ModuleType:
    """Import Pythia, or say how to get it."""
    try:
        return importlib.import_module("pythia8mc")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "simulating events needs Pythia 8: pip install 'torchapl[physics]'", name="pythia8mc"
        ) from error


class Generator:
    """One initialised Pythia, giving events of one process.

    Args:
        process: ``"signal"`` (gg -> H) or ``"background"`` (q qbar -> Z/gamma*), to tau pairs.
        seed: Pythia's seed, from 1 to 900,000,000.
        hadronization: Turn partons into hadrons; otherwise jets are made of partons.
        multiple_interactions: Simulate further parton collisions of the same two protons.
    """

    def __init__(
        self,
        process: Process,
        *,
        seed: int,
        hadronization: bool = True,
        multiple_interactions: bool = True,
    ) -> None:
        pythia8 = import_pythia()
        self._hadronization = hadronization
        self._copy = pythia8.Event
        self._pythia: Pythia = pythia8.Pythia("", False)
        switch = "on" if multiple_interactions else "off"
        settings = (f"Random:seed = {seed}", f"PartonLevel:MPI = {switch}")
        for line in (*_COMMON, *_PROCESS[process], *settings):
            if not self._pythia.readString(line):
                raise RuntimeError(f"Pythia refused the setting {line!r}")
        if not self._pythia.init():
            raise RuntimeError(f"Pythia could not be initialised for the {process} process")
        # Anti-kT (power -1) over visible particles (2) with their own masses (2).
        self._cluster = pythia8.SlowJet(-1, JET_RADIUS, 0.0, MAX_ETA, 2, 2)

    def pairs(self, count: int) -> Pairs:
        """Make collisions up to the tau pair and the showers of partons."""
        rows = [self._pair() for _ in range(count)]
        minus, plus, quark, cosine, events = zip(*rows, strict=True)
        return Pairs(np.array(minus), np.array(plus), np.array(quark), np.array(cosine), events)

    def surroundings(self, events: Sequence[Event]) -> Surroundings:
        """Finish collisions: make hadrons and find jets."""
        rows = [self._surroundings(event) for event in events]
        return Surroundings(
            np.array([row[0] for row in rows]).reshape(-1, MAX_JETS, 4),
            np.array([row[1] for row in rows]).reshape(-1, 2),
            np.array([row[2] for row in rows]),
        )

    def _pair(self) -> tuple[tuple[float, ...], tuple[float, ...], int, float, Event]:
        _until_success(self._pythia.next)
        event, process = self._pythia.event, self._pythia.process
        taus = {event[i].id(): event[i] for i in _taus(event)}
        quark = event[3].id()
        # For massless decay products, cos = tanh(half the difference of rapidities).
        rapidity = {process[i].id(): process[i].y() for i in (6, 7)}
        cosine = math.tanh((rapidity[15] - rapidity[-15]) / 2) * (1 if quark > 0 else -1)
        momenta = _components(taus[15].p()), _components(taus[-15].p())
        return *momenta, quark, cosine, self._copy(event)

    def _hadronize(self, event: Event) -> bool:
        self._pythia.event = event
        # The record has its junctions; a new search would lose those of the beam remnants.
        return not self._hadronization or self._pythia.forceHadronLevel(False)

    def _surroundings(
        self, event: Event
    ) -> tuple[list[tuple[float, ...]], tuple[float, float], float]:
        _until_success(lambda: self._hadronize(event))
        event = self._pythia.event
        # Out of the clustering, which takes final particles only.
        for i in _taus(event):
            event[i].statusNeg()
        cluster = self._cluster
        cluster.analyze(event)
        jets: list[tuple[float, ...]] = []
        x = y = activity = 0.0
        for i in range(cluster.sizeJet()):
            momentum, pt = cluster.p(i), cluster.pT(i)
            x += momentum.px()
            y += momentum.py()
            activity += pt
            if pt > JET_MIN_PT and len(jets) < MAX_JETS:
                jets.append(_components(momentum))
        jets += [(0.0, 0.0, 0.0, 0.0)] * (MAX_JETS - len(jets))
        return jets, (x, y), activity


def _until_success(step: Callable[[], bool]) -> None:
    """Repeat a step of Pythia, which now and then gives up on an event."""
    for _ in range(_MAX_FAILURES):
        if step():
            return
    raise RuntimeError(f"Pythia failed to make an event {_MAX_FAILURES} times in a row")


def _taus(event: Event) -> list[int]:
    """Places of the two final taus in the record."""
    boson = event[event[5].iBotCopyId()]
    return [event[i].iBotCopyId() for i in (boson.daughter1(), boson.daughter2())]


def _components(momentum: Vec4) -> tuple[float, float, float, float]:
    return momentum.px(), momentum.py(), momentum.pz(), momentum.e()
