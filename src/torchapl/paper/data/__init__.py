"""Data sets of the 2015 experiments: real ones of any size, checked before use, and toys."""

from torchapl.paper.data.batches import Batches, Bundle
from torchapl.paper.data.bundle import open_data
from torchapl.paper.data.catalogue import DATA_SETS, DataSet
from torchapl.paper.data.files import DataError, default_root
from torchapl.paper.data.shards import Plan
from torchapl.paper.data.store import EventStore, store_folder
from torchapl.paper.data.writer import EventStoreWriter

__all__ = [
    "DATA_SETS",
    "Batches",
    "Bundle",
    "DataError",
    "DataSet",
    "EventStore",
    "EventStoreWriter",
    "Plan",
    "default_root",
    "open_data",
    "store_folder",
]
