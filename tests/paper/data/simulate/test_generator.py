from __future__ import annotations

import sys

import numpy as np
import pytest

from torchapl.paper.data.simulate.generator import JET_MIN_PT, MAX_JETS, Generator, Process
from torchapl.paper.data.simulate.kinematics import Array, mass, pt
from torchapl.paper.data.simulate.taus import TAU_MASS, decay

PROCESSES: tuple[Process, ...] = ("signal", "background")


@pytest.fixture(scope="module")
def pythia() -> None:
    pytest.importorskip("pythia8mc")


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.usefixtures("pythia")
def test_taus_come_from_the_right_boson(process: Process) -> None:
    pairs = Generator(process, seed=1, multiple_interactions=False).pairs(300)
    np.testing.assert_allclose(mass(pairs.minus), TAU_MASS, rtol=1e-3)
    peak = {"signal": 125.0, "background": 91.19}[process]
    # A tau may have radiated a photon, so look at the middle.
    assert np.median(mass(pairs.minus + pairs.plus)) == pytest.approx(peak, abs=1.0)
    flavours = set(np.abs(pairs.quark).tolist())
    assert flavours == {21} if process == "signal" else flavours <= {1, 2, 3, 4, 5}
    zz = {"signal": -1, "background": 1}[process]
    assert (pairs.spin().correlation[:, 2] == zz).all()


@pytest.mark.usefixtures("pythia")
def test_tau_minus_follows_the_left_handed_quark() -> None:
    # At the Z, A_FB = 3/4 A_q A_tau = 0.1 for down and 0.07 for up quarks; here known to 0.02.
    pairs = Generator("background", seed=1, multiple_interactions=False).pairs(3000)
    forward = np.sign(pairs.cosine).mean()
    assert 0.02 < forward < 0.16


@pytest.mark.parametrize(("hadronization", "interactions"), [(True, True), (False, False)])
@pytest.mark.usefixtures("pythia")
def test_surroundings_balance_the_taus(hadronization: bool, interactions: bool) -> None:
    generator = Generator(
        "signal", seed=1, hadronization=hadronization, multiple_interactions=interactions
    )
    pairs = generator.pairs(60)
    around = generator.surroundings(pairs.events)
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
        (generator := Generator("background", seed=1, multiple_interactions=on)).surroundings(
            generator.pairs(60).events
        )
        for on in (False, True)
    )
    assert np.median(busy.activity) > 2 * np.median(quiet.activity)


def test_says_how_to_get_pythia(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pythia8mc", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'torchapl\[physics\]'"):
        Generator("signal", seed=1)


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
    pairs = Generator(process, seed=2, multiple_interactions=False).pairs(2000)
    rng = np.random.default_rng(0)
    taus = np.stack([pairs.minus, pairs.plus], axis=1)
    rounds = [decay(pairs.minus, pairs.plus, pairs.spin(), rng) / taus[..., 3:] for _ in range(20)]
    ours = np.concatenate(rounds)[..., 3]
    theirs = pythia_shares(process, events)
    error = theirs.std() / np.sqrt(events)
    np.testing.assert_allclose(ours.mean(0), theirs.mean(0), atol=4 * error)
    np.testing.assert_allclose(ours.std(0), theirs.std(0), atol=4 * error)
    correlations = [np.corrcoef(shares.T)[0, 1] for shares in (ours, theirs)]
    assert correlations[0] == pytest.approx(correlations[1], abs=4 / np.sqrt(events))
