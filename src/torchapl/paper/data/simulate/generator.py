"""Proton collisions by Pythia 8: first the tau pairs, then the surroundings of those that matter.

Taus are left undecayed by Pythia; :mod:`.taus` decays them as soon as the boson is there. A
collision is looked at early, when the showers of partons have come down to ``LOOK_PT``: what they
still do moves the boson by a few GeV at most, and where the leptons are far from being accepted,
the collision is dropped. The rest is kept as partons: only those whose leptons the detector
accepts, one in four to eight, are worth the time of making hadrons and jets.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from torchapl.paper.data.simulate.kinematics import Array
from torchapl.paper.data.simulate.taus import HIGGS_SPIN, Decay, Decays, Spin, z_spin

if TYPE_CHECKING:
    from pythia8mc import Event, Particle, Pythia, Vec4

Process = Literal["signal", "background"]
# Transverse momenta and longitudinal ones of two leptons; True if they cannot be accepted.
Hopeless = Callable[[float, float, float, float], bool]

MAX_JETS = 10
JET_RADIUS = 0.4
JET_MIN_PT = 15.0
# The detector's outer edge; what leaves beyond it is lost.
MAX_ETA = 5.0
# Where the showers are when a collision is looked at, in GeV.
LOOK_PT = 5.0
_MAX_FAILURES = 100
# Pythia's number of the last step of a shower that is not of a decayed resonance.
_LAST_SHOWER = 3

_COMMON = (
    "Print:quiet = on",
    "Next:numberShowEvent = 0",
    "Beams:idA = 2212",
    "Beams:idB = 2212",
    "Beams:eCM = 8000.",
    "15:mayDecay = off",
    # Partons radiate down to 1 GeV, not 0.5, and hadronisation takes over from there: a third less
    # time, and no feature sees it (Kolmogorov-Smirnov tests in docs/htautau.md).
    "TimeShower:pTmin = 1.",
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
    """Tau pairs and their decays; momenta ``(px, py, pz, E)`` in GeV.

    Attributes:
        minus: Momenta of the tau-, ``(n, 4)``.
        plus: Momenta of the tau+, ``(n, 4)``.
        rest: Momenta of the leptons in the rest frames of the taus, ``(n, 2, 4)``.
        spins: Spin state of each pair.
        events: Pythia's records of the collisions, as partons.
    """

    minus: Array
    plus: Array
    rest: Array
    spins: Sequence[Spin]
    events: Sequence[Event]


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


def _never(pt1: float, pz1: float, pt2: float, pz2: float) -> bool:
    """Let every collision be finished."""
    return False


class Generator:
    """One initialised Pythia, giving events of one process.

    Args:
        process: ``"signal"`` (gg -> H) or ``"background"`` (q qbar -> Z/gamma*), to tau pairs.
        seed: Pythia's seed, from 1 to 900,000,000.
        rng: Source of randomness of the decays.
        hadronization: Turn partons into hadrons; otherwise jets are made of partons.
        multiple_interactions: Simulate further parton collisions of the same two protons.
        hopeless: Says early which collisions are not worth finishing; without, all are.
    """

    def __init__(
        self,
        process: Process,
        *,
        seed: int,
        rng: np.random.Generator,
        hadronization: bool = True,
        multiple_interactions: bool = True,
        hopeless: Hopeless = _never,
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
        self._look = _early_look(self._pythia, Decays(rng), hopeless)
        if not self._pythia.setUserHooksPtr(self._look) or not self._pythia.init():
            raise RuntimeError(f"Pythia could not be initialised for the {process} process")
        # Anti-kT (power -1) over visible particles (2) with their own masses (2).
        self._cluster = pythia8.SlowJet(-1, JET_RADIUS, 0.0, MAX_ETA, 2, 2)

    def pairs(self, count: int) -> Pairs:
        """Make collisions, not hopeless ones, up to the tau pair and the showers of partons."""
        minus, plus, decays, spins, events = [], [], [], [], []
        for _ in range(count):
            _until_success(self._pythia.next)
            event = self._pythia.event
            taus = {event[i].id(): event[i] for i in _taus(event)}
            minus.append(_components(taus[15].p()))
            plus.append(_components(taus[-15].p()))
            decays.append(self._look.decay)
            spins.append(self._look.spin)
            events.append(self._copy(event))
        rest = np.array([decay.rest for decay in decays])
        return Pairs(np.array(minus), np.array(plus), rest, spins, events)

    def surroundings(self, events: Sequence[Event]) -> Surroundings:
        """Finish collisions: make hadrons and find jets."""
        rows = [self._surroundings(event) for event in events]
        return Surroundings(
            np.array([row[0] for row in rows]).reshape(-1, MAX_JETS, 4),
            np.array([row[1] for row in rows]).reshape(-1, 2),
            np.array([row[2] for row in rows]),
        )

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
            momentum = cluster.p(i)
            px, py = momentum.px(), momentum.py()
            pt = math.hypot(px, py)
            x, y, activity = x + px, y + py, activity + pt
            if pt > JET_MIN_PT and len(jets) < MAX_JETS:
                jets.append(_components(momentum))
        jets += [(0.0, 0.0, 0.0, 0.0)] * (MAX_JETS - len(jets))
        return jets, (x, y), activity


def _early_look(pythia: Pythia, decays: Decays, hopeless: Hopeless) -> Any:
    """Return a hook for Pythia that decays the taus, and vetoes collisions that are hopeless."""
    pythia8 = import_pythia()
    process = pythia.process

    class EarlyLook(pythia8.UserHooks):  # type: ignore[misc, name-defined]  # untyped
        spin: Spin
        decay: Decay

        def canVetoPT(self) -> bool:  # noqa: N802
            return True

        def scaleVetoPT(self) -> float:  # noqa: N802
            return LOOK_PT

        # Few calls of Pythia: each takes a microsecond, and the whole collision a few hundred.
        def doVetoPT(self, position: int, event: Event) -> bool:  # noqa: N802
            if position > _LAST_SHOWER:
                return False  # asked again, for the photons that the taus radiate
            minus, plus = process[6], process[7]
            if minus.id() < 0:
                minus, plus = plus, minus
            boson = event[event[5].iBotCopyId()].p()
            # The taus go with the boson, which the showers have pushed.
            push = pythia8.RotBstMatrix()
            push.bst(process[5].p(), boson)
            tau = minus.p()
            tau.rotbst(push)
            x, y, z = tau.px(), tau.py(), tau.pz()
            pt1, pz1 = math.hypot(x, y), z
            pt2, pz2 = math.hypot(boson.px() - x, boson.py() - y), boson.pz() - z
            # A lepton has the direction of its tau, and at most its momentum.
            if hopeless(pt1, pz1, pt2, pz2):
                return True
            self.spin = _spin(process[3].id(), minus, plus)
            self.decay = decays.draw(self.spin)
            share1, share2 = self.decay.shares
            return hopeless(share1 * pt1, share1 * pz1, share2 * pt2, share2 * pz2)

    return EarlyLook()


def _spin(parton: int, minus: Particle, plus: Particle) -> Spin:
    """Spin state of a pair, from the parton along +z and the taus of the hard process."""
    if parton == 21:
        return HIGGS_SPIN
    # For massless decay products, cos = tanh(half the difference of rapidities).
    cosine = math.tanh((minus.y() - plus.y()) / 2) * (1 if parton > 0 else -1)
    return z_spin((minus.p() + plus.p()).mCalc(), cosine, up_type=parton % 2 == 0)


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
