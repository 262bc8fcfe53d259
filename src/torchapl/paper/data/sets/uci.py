"""HIGGS and SUSY of the UCI repository.

UCI publishes no checksums. The size of HIGGS.csv.gz is the server's, its SHA-256 the one that
Ludwig's data catalogue (``ludwig/datasets/configs/higgs.yaml``) checks.
"""

from __future__ import annotations

from functools import partial

from torchapl.paper.data.catalogue import DATA_SETS, DataSet, Download, EventSet
from torchapl.paper.data.convert import load_events
from torchapl.paper.data.layouts import Layout

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
_EXOTIC = (
    "P. Baldi, P. Sadowski, D. Whiteson, Searching for Exotic Particles in High-Energy Physics "
    "with Deep Learning, Nature Communications 5, 4308 (2014)"
)

HIGGS = Layout(
    features=(
        *(
            "lepton_pT",
            "lepton_eta",
            "lepton_phi",
            "missing_energy_magnitude",
            "missing_energy_phi",
        ),
        *(f"jet_{jet}_{name}" for jet in (1, 2, 3, 4) for name in ("pt", "eta", "phi", "b_tag")),
        *("m_jj", "m_jjj", "m_lv", "m_jlv", "m_bb", "m_wbb", "m_wwbb"),
    ),
    rows=11_000_000,
    test_rows=500_000,
)
SUSY = Layout(
    features=(
        *("lepton_1_pT", "lepton_1_eta", "lepton_1_phi", "lepton_2_pT", "lepton_2_eta"),
        *(
            "lepton_2_phi",
            "missing_energy_magnitude",
            "missing_energy_phi",
            "MET_rel",
            "axial_MET",
        ),
        *("M_R", "M_TR_2", "R", "MT2", "S_R", "M_Delta_R", "dPhi_r_b", "cos_theta_r1"),
    ),
    rows=5_000_000,
    test_rows=500_000,
)

DATA_SETS.register(
    DataSet(
        "uci-higgs",
        "UCI HIGGS",
        about="UCI HIGGS: 11,000,000 simulated events, 28 features (CC BY 4.0)",
        load=partial(load_events, "uci-higgs"),
        rows=10_500_000,
        stand_ins={"smoke": "toy-events"},
        citation=_EXOTIC + "; DOI 10.24432/C5V312",
        files=EventSet(
            HIGGS,
            Download(
                _UCI + "00280/HIGGS.csv.gz",
                "HIGGS.csv.gz",
                2_816_407_858,
                "ea302c18164d4e3d916a1e2e83a9a8d07069fa6ebc7771e4c0540d54e593b698",
            ),
            ("HIGGS*.*", "higgs-uci/HIGGS*.*"),
        ),
    )
)
DATA_SETS.register(
    DataSet(
        "uci-susy",
        "UCI SUSY",
        about="UCI SUSY: 5,000,000 simulated events, 18 features (CC BY 4.0)",
        load=partial(load_events, "uci-susy"),
        rows=4_500_000,
        stand_ins={"smoke": "toy-events"},
        citation=_EXOTIC + "; DOI 10.24432/C54606",
        files=EventSet(
            SUSY,
            Download(_UCI + "00279/SUSY.csv.gz", "SUSY.csv.gz", None, None),
            ("SUSY*.*", "susy-uci/SUSY*.*"),
        ),
    )
)
