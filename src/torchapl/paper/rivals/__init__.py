"""The other units and methods of the paper's tables, as modules of their own."""

from torchapl.paper.rivals.attention import gates, policy_cost
from torchapl.paper.rivals.channel_out import ChannelOut, channel_out
from torchapl.paper.rivals.companion import Companions
from torchapl.paper.rivals.losses import cross_entropy, squared_hinge
from torchapl.paper.rivals.max_norm import max_norm_, max_norm_layer_
from torchapl.paper.rivals.maxout import Maxout, maxout
from torchapl.paper.rivals.probout import Probout, probout
from torchapl.paper.rivals.snes import SNES

__all__ = [
    "SNES",
    "ChannelOut",
    "Companions",
    "Maxout",
    "Probout",
    "channel_out",
    "cross_entropy",
    "gates",
    "max_norm_",
    "max_norm_layer_",
    "maxout",
    "policy_cost",
    "probout",
    "squared_hinge",
]
