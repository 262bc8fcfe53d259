from __future__ import annotations

import sys

import numpy as np
import pytest

from torchapl.paper.data.simulate.detector import accepted, hopeless, measure_leptons
from torchapl.paper.data.simulate.generator import JET_MIN_PT, MAX_JETS, Generator, Process
from torchapl.paper.data.simulate.kinematics import Array, mass, pt
from torchapl.paper.data.simulate.taus import TAU_MASS, Decays, leptons

PROCESSES: tuple[Process, ...] = ("signal", "background")


@pytest.fixture(scope="module")
def pythia() -> None:
    pytest.importorskip("pythia8mc")


def generator(process: Process, seed: int = 1, **options: object) -> Generator:
    settings: dict[str, object] = {"multiple_interactions": False, **options}
    rng = np.random.default_rng(seed)
    return Generator(process, seed=seed, rng=rng, **settings)


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.usefixtures("pythia")
def test_taus_come_from_the_right_boson(process: Process) -> None:
    pairs = generator(process).pairs(300)
    np.testing.assert_allclose(mass(pairs.minus), TAU_MASS, rtol=1e-3)
    peak = {"signal": 125.0, "background": 91.19}[process]
    # A tau may have radiated a photon, so look at the middle.
    assert np.median(mass(pairs.minus + pairs.plus)) == pytest.approx(peak, abs=1.0)
    zz = {"signal": -1, "background": 1}[process]
    assert {spin.correlation[2] for spin in pairs.spins} == {zz}


@pytest.mark.usefixtures("pythia")
def test_tau_minus_follows_the_left_handed_quark() -> None:
    # A_tau = 0.15 at the Z, more beyond it and less where photons take part.
    pairs = generator("background").pairs(1000)
    polarisation = np.array([spin.polarisation for spin in pairs.spins])
    assert -0.20 < polarisation.mean() < -0.10
    # Forward taus are left-handed, backward ones right-handed; the quark decides what forward is.
    assert polarisation.min() < -0.9
    assert polarisation.max() > 0.8


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.usefixtures("pythia")
def test_no_collision_that_is_dropped_early_would_be_accepted(process: Process) -> None:
    asked: list[bool] = []

    def remember(*momenta: float) -> bool:
        asked.append(hopeless(*momenta))
        return False

    making, dropped, parts = generator(process, hopeless=remember), [], []
    for _ in range(600):
        asked.clear()
        parts.append(making.pairs(1))
        # The last two: of the taus, then of the leptons. A failed collision asks before.
        dropped.append(any(asked[-2:]))
    rest, minus, plus = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("rest", "minus", "plus")
    )
    found = accepted(measure_leptons(leptons(rest, minus, plus), np.random.default_rng(0)))
    share = {"signal": (0.5, 0.63), "background": (0.7, 0.85)}[process]
    assert share[0] < np.mean(dropped) < share[1]
    assert found.sum() > 50
    assert not (found & np.array(dropped)).any()


@pytest.mark.usefixtures("pythia")
def test_dropped_collisions_do_not_come() -> None:
    pairs = generator("background", hopeless=hopeless).pairs(200)
    found = accepted(
        measure_leptons(leptons(pairs.rest, pairs.minus, pairs.plus), np.random.default_rng(0))
    )
    assert found.mean() > 0.4


@pytest.mark.parametrize(("hadronization", "interactions"), [(True, True), (False, False)])
@pytest.mark.usefixtures("pythia")
def test_surroundings_balance_the_taus(hadronization: bool, interactions: bool) -> None:
    making = generator("signal", hadronization=hadronization, multiple_interactions=interactions)
    pairs = making.pairs(60)
    around = making.surroundings(pairs.events)
    pair = pairs.minus + pairs.plus
    # Nothing is missing yet but what flies beyond |eta| = 5 and the neutrinos of heavy quarks.
    left = pt(pair[:, :2] + around.recoil)
    assert np.median(left) < 0.2 * np.median(pt(pair))
    assert around.jets.shape == (60, MAX_JETS, 4)
    sizes = pt(around.jets)
    assert ((sizes == 0) | (sizes > JET_MIN_PT)).all()
    assert (np.diff(sizes, axis=1) <= 0).all()
    assert (around.activity >= sizes.sum(1) - 1e-6).all()


@pytest.mark.usefixtures("pythia")
def test_multiple_interactions_add_activity() -> None:
    quiet, busy = (
        (making := generator("background", multiple_interactions=on)).surroundings(
            making.pairs(60).events
        )
        for on in (False, True)
    )
    assert np.median(busy.activity) > 2 * np.median(quiet.activity)


def test_says_how_to_get_pythia(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pythia8mc", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'torchapl\[physics\]'"):
        generator("signal")


def pythia_shares(process: Process, events: int) -> Array:
    """Energy shares of the leptons when Pythia decays the taus itself, spin and all."""
    import pythia8mc

    from torchapl.paper.data.simulate import generator as ours

    pythia = pythia8mc.Pythia("", False)
    kept = [line for line in ours._COMMON if "15:mayDecay" not in line and "Hadron" not in line]
    extra = ("PartonLevel:MPI = off", "HadronLevel:Hadronize = off", "Random:seed = 1")
    for line in (*kept, *ours._PROCESS[process], *extra, "15:onMode = off", "15:onIfAny = 11 13"):
        assert pythia.readString(line)
    assert pythia.init()
    shares = []
    while len(shares) < events:
        pythia.next()
        event = pythia.event
        found = {}
        for i in ours._taus(event):
            for j in range(event[i].daughter1(), event[i].daughter2() + 1):
                if event[j].idAbs() in (11, 13):
                    found[event[i].id()] = event[j].e() / event[i].e()
        shares.append((found[15], found[-15]))
    return np.array(shares)


@pytest.mark.slow
@pytest.mark.parametrize(("process", "events"), [("signal", 4000), ("background", 1000)])
@pytest.mark.usefixtures("pythia")
def test_decays_agree_with_those_of_pythia(process: Process, events: int) -> None:
    pairs = generator(process, seed=2).pairs(2000)
    decays = Decays(np.random.default_rng(0))
    taus = np.stack([pairs.minus, pairs.plus], axis=1)
    rounds = []
    for _ in range(20):
        rest = np.array([decays.draw(spin).rest for spin in pairs.spins])
        rounds.append(leptons(rest, pairs.minus, pairs.plus) / taus[..., 3:])
    ours = np.concatenate(rounds)[..., 3]
    theirs = pythia_shares(process, events)
    error = theirs.std() / np.sqrt(events)
    np.testing.assert_allclose(ours.mean(0), theirs.mean(0), atol=4 * error)
    np.testing.assert_allclose(ours.std(0), theirs.std(0), atol=4 * error)
    correlations = [np.corrcoef(shares.T)[0, 1] for shares in (ours, theirs)]
    assert correlations[0] == pytest.approx(correlations[1], abs=4 / np.sqrt(events))
