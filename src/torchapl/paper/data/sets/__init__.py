"""The data sets, one file for each source; a new one is a file and its import here."""

from torchapl.paper.data.sets import atlas, cifar, htautau, toys, uci

__all__ = ["atlas", "cifar", "htautau", "toys", "uci"]
