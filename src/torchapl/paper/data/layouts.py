"""How the known event tables are laid out: columns, labels, missing values, test rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torchapl.paper.data.files import DataError


@dataclass(frozen=True)
class Layout:
    """The columns of an event table, and its split.

    Attributes:
        features: Columns the network sees, in order.
        label: Column with the class.
        extras: Kept in the store, if the file has them, but not shown to the network; weights.
        ignored: Columns of the file that are dropped.
        label_values: Text of the label column and what it means; empty if the column holds 0 and 1.
        missing: Value that stands for "does not exist" among the features.
        names_fixed: Whether a file that names its columns must use these names. If not, any names
            will do, as long as there is a label and the number of features is right. Where a file
            has no names (CSV without header, plain NPY), its columns are the label, then the
            features.
        rows: Rows of the complete set.
        test_rows: Rows at the end of the complete set that are its test set.
        test_divisor: Of any other number of rows, the last ``rows // test_divisor`` are the test
            set.
    """

    features: tuple[str, ...]
    label: str = "label"
    extras: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    label_values: Mapping[str, float] = field(default_factory=dict)
    missing: float | None = None
    names_fixed: bool = True
    rows: int = 0
    test_rows: int = 0
    test_divisor: int = 5

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a store: features, label, extras."""
        return (*self.features, self.label, *self.extras)

    def split(self, rows: int) -> tuple[int, int]:
        """Return how many rows at the start are for training and how many at the end for testing.

        Example:
            >>> LAYOUTS["uci-higgs"].split(11_000_000), LAYOUTS["uci-higgs"].split(100)
            ((10500000, 500000), (80, 20))
        """
        test = self.test_rows if rows == self.rows else rows // self.test_divisor
        return rows - test, test


LAYOUTS: Mapping[str, Layout] = {
    "atlas-higgs-2014": Layout(
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
    ),
    "uci-higgs": Layout(
        features=(
            *(
                "lepton_pT",
                "lepton_eta",
                "lepton_phi",
                "missing_energy_magnitude",
                "missing_energy_phi",
            ),
            *(
                f"jet_{jet}_{name}"
                for jet in (1, 2, 3, 4)
                for name in ("pt", "eta", "phi", "b_tag")
            ),
            *("m_jj", "m_jjj", "m_lv", "m_jlv", "m_bb", "m_wbb", "m_wwbb"),
        ),
        rows=11_000_000,
        test_rows=500_000,
    ),
    "uci-susy": Layout(
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
    ),
    # 10 low-level features, then 15 high-level ones; 10 of the paper's 80 million events are its
    # test set.
    "htautau": Layout(
        features=(
            *(f"low_{number}" for number in range(10)),
            *(f"high_{number}" for number in range(15)),
        ),
        names_fixed=False,
        rows=80_000_000,
        test_rows=10_000_000,
        test_divisor=8,
    ),
}


def choose_columns(names: Sequence[str], layout: Layout) -> list[str]:
    """Return the file's columns that become features, label and extras, in this order.

    Extras may be absent: the challenge's own training.csv has no KaggleWeight.
    """
    needed = (*layout.features, layout.label)
    if all(name in names for name in needed):
        return [*needed, *(name for name in layout.extras if name in names)]
    rest = [name for name in names if name not in (layout.label, *layout.extras, *layout.ignored)]
    if not layout.names_fixed and layout.label in names and len(rest) == len(layout.features):
        return [*rest, layout.label]
    absent = [name for name in needed if name not in names]
    raise DataError(
        f"has {len(names)} columns and lacks {', '.join(absent[:5])}"
        f"{', ...' if len(absent) > 5 else ''} of the {len(needed)} that are needed"
    )
