"""The events of the ATLAS Higgs challenge of 2014, and the part of them that ships with us.

CERN publishes no checksums.
"""

from __future__ import annotations

from functools import partial
from importlib import resources
from pathlib import Path

from torchapl.paper.data.catalogue import DATA_SETS, DataSet, Download, EventSet
from torchapl.paper.data.content import EventData
from torchapl.paper.data.convert import load_events
from torchapl.paper.data.layouts import Layout
from torchapl.paper.data.readers import read_table

EMBEDDED_FILE = resources.files("torchapl.paper.data") / "embedded" / "atlas-higgs-2014.parquet"
EMBEDDED_SHA256 = "f5379713186017b5b29279eb415fd88a204de9d44d3a975f6624d8b7b780ae39"

LAYOUT = Layout(
    features=(
        *("DER_mass_MMC", "DER_mass_transverse_met_lep", "DER_mass_vis", "DER_pt_h"),
        *(
            "DER_deltaeta_jet_jet",
            "DER_mass_jet_jet",
            "DER_prodeta_jet_jet",
            "DER_deltar_tau_lep",
        ),
        *("DER_pt_tot", "DER_sum_pt", "DER_pt_ratio_lep_tau", "DER_met_phi_centrality"),
        *("DER_lep_eta_centrality", "PRI_tau_pt", "PRI_tau_eta", "PRI_tau_phi", "PRI_lep_pt"),
        *(
            "PRI_lep_eta",
            "PRI_lep_phi",
            "PRI_met",
            "PRI_met_phi",
            "PRI_met_sumet",
            "PRI_jet_num",
        ),
        *("PRI_jet_leading_pt", "PRI_jet_leading_eta", "PRI_jet_leading_phi"),
        *("PRI_jet_subleading_pt", "PRI_jet_subleading_eta", "PRI_jet_subleading_phi"),
        "PRI_jet_all_pt",
    ),
    label="Label",
    extras=("Weight", "KaggleWeight"),
    ignored=("EventId", "KaggleSet"),
    label_values={"b": 0.0, "s": 1.0},
    missing=-999.0,
    rows=818_238,
    # The first 250,000 rows are the challenge's training set.
    test_rows=568_238,
)

DATA_SETS.register(
    DataSet(
        "atlas-higgs-2014",
        "ATLAS 2014",
        about="ATLAS Higgs challenge 2014: 818,238 simulated H -> tau tau events, 30 features",
        load=partial(load_events, "atlas-higgs-2014"),
        rows=250_000,
        stand_ins={"lab": "atlas-higgs-embedded", "smoke": "atlas-higgs-embedded"},
        citation="ATLAS collaboration (2014), Dataset from the ATLAS Higgs Boson Machine Learning "
        "Challenge 2014, CERN Open Data Portal, DOI 10.7483/OPENDATA.ATLAS.ZBP2.M5T8 (CC0)",
        files=EventSet(
            LAYOUT,
            Download(
                "https://opendata.cern.ch/record/328/files/atlas-higgs-challenge-2014-v2.csv.gz",
                "atlas-higgs-challenge-2014-v2.csv.gz",
                None,
                None,
            ),
            (
                "atlas-higgs-challenge-2014-v2*.*",
                "higgs-tautau/atlas-higgs-challenge-2014-v2*.*",
            ),
        ),
    )
)


def _load_embedded(root: Path) -> EventData:
    with resources.as_file(EMBEDDED_FILE) as path:
        table = read_table(path, LAYOUT)
    return EventData.of_table(table, LAYOUT.features, LAYOUT.split(len(table))[1], missing=True)


DATA_SETS.register(
    DataSet(
        "atlas-higgs-embedded",
        "ATLAS 2014, embedded",
        about="22,889 events of atlas-higgs-2014 that ship with the package (CC0)",
        load=_load_embedded,
        rows=18_312,
    )
)
