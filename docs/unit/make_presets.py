"""Write presets.js: the units that the interactive page can start from.

Run it after a change of ``torchapl.curves.fit``: ``python docs/unit/make_presets.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch.nn import functional as F

from torchapl import curves

TARGET = Path(__file__).with_name("presets.js")
HEADER = "// Made by make_presets.py: the fits are torchapl.curves.fit's, rounded to four digits.\n"


def presets() -> dict[str, dict[str, object]]:
    units: dict[str, dict[str, object]] = {
        "example": {"label": "Example", "slope": [-0.2, 0.5], "offset": [0.0, -1.0]},
        "relu": {"label": "ReLU", "slope": [0.0], "offset": [0.0]},
        "leaky": {"label": "Leaky ReLU", "slope": [-0.25], "offset": [0.0]},
        "abs": {"label": "|x|", "slope": [1.0], "offset": [0.0]},
    }
    for name, label, function in (("silu", "SiLU", F.silu), ("gelu", "GELU", F.gelu)):
        fit = curves.fit(function, num_hinges=5, interval=(-6.0, 6.0))
        # Adding 0.0 turns -0.0 into 0.0.
        slope, offset = (
            [round(value, 4) + 0.0 for value in t.tolist()] for t in (fit.slope, fit.offset)
        )
        units[name] = {
            "label": f"{label}, fitted",
            "slope": slope,
            "offset": offset,
            # The function itself, from -6 to 6.
            "target": [round(y, 3) + 0.0 for y in function(torch.linspace(-6, 6, 121)).tolist()],
            "note": f"The best fit of {label} with 5 hinges on [-6, 6] "
            f"errs by {fit.max_error:.3f} at most.",
        }
    return units


def text() -> str:
    lines = [f"  {name}: {json.dumps(unit)},\n" for name, unit in presets().items()]
    return f"{HEADER}export const PRESETS = {{\n{''.join(lines)}}};\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    print(f"wrote {TARGET}")
