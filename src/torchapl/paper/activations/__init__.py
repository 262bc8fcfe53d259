"""The activations of networks, one file each; every file of this folder is imported.

Example:
    >>> Activation.parse("leaky:0.2").build((274,))
    LeakyReLU(negative_slope=0.2)
"""

import importlib
import pkgutil

from torchapl.paper.activations.base import ACTIVATIONS, Activation

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

# Those that every installation has; experiments and tables of the paper are made of them.
BUILT_IN = tuple(ACTIVATIONS)

__all__ = ["ACTIVATIONS", "BUILT_IN", "Activation"]
