"""The data sets by name: where they come from, their sizes and their checksums.

CIFAR: archives, sizes and MD5 sums as on https://www.cs.toronto.edu/~kriz/cifar.html (the page
rounds sizes to MB; the exact ones are the server's Content-Length). The page publishes no sums for
the files inside. Their SHA-256 (binary form) come from files unpacked from archives with the
published MD5; the MD5 of the python form are the ones that torchvision checks
(``torchvision/datasets/cifar.py``).

Events: CERN and UCI publish no sums. The size of HIGGS.csv.gz is the server's, its SHA-256 the one
that Ludwig's data catalogue (``ludwig/datasets/configs/higgs.yaml``) checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class DataFile:
    """A file inside a set's folder; ``checksum`` is MD5 (32 digits) or SHA-256 (64)."""

    name: str
    size: int | None
    checksum: str

    @property
    def algorithm(self) -> str:
        """Name of the checksum's algorithm for :mod:`hashlib`."""
        return "md5" if len(self.checksum) == 32 else "sha256"


@dataclass(frozen=True)
class Download:
    """One file to fetch; size or checksum is None where its publisher states none."""

    url: str
    name: str
    size: int | None
    checksum: str | None


@dataclass(frozen=True)
class ImageForm:
    """One of the forms in which an image set is published."""

    kind: Literal["binary", "python"]
    archive: Download
    folder: str
    train: tuple[DataFile, ...]
    test: tuple[DataFile, ...]


@dataclass(frozen=True)
class ImageSet:
    """Labelled images of 3 x 32 x 32 bytes."""

    about: str
    citation: str
    classes: int
    # Bytes before the pixels of a binary record; the class is the last of them (CIFAR-100: coarse,
    # then fine).
    label_bytes: int
    label_key: str
    forms: tuple[ImageForm, ...]


@dataclass(frozen=True)
class EventSet:
    """A table of events; ``files`` are patterns, the first that fits below the root is taken."""

    about: str
    citation: str
    layout: str
    download: Download | None
    files: tuple[str, ...]


_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_TINY = (
    "A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, technical report, "
    "University of Toronto, 2009"
)
_RECORDS_10 = 10_000 * 3073

IMAGE_SETS: Mapping[str, ImageSet] = {
    "cifar10": ImageSet(
        about="60,000 photographs of 3 x 32 x 32 bytes in 10 classes, 10,000 of them for testing",
        citation=_TINY,
        classes=10,
        label_bytes=1,
        label_key="labels",
        forms=(
            ImageForm(
                "binary",
                Download(
                    _CIFAR + "cifar-10-binary.tar.gz",
                    "cifar-10-binary.tar.gz",
                    170_052_171,
                    "c32a1d4ab5d03f1284b67883e8d87530",
                ),
                "cifar-10-batches-bin",
                tuple(
                    DataFile(f"data_batch_{number}.bin", _RECORDS_10, checksum)
                    for number, checksum in enumerate(
                        (
                            "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                            "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                            "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                            "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                            "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                        ),
                        start=1,
                    )
                ),
                (
                    DataFile(
                        "test_batch.bin",
                        _RECORDS_10,
                        "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
                    ),
                ),
            ),
            ImageForm(
                "python",
                Download(
                    _CIFAR + "cifar-10-python.tar.gz",
                    "cifar-10-python.tar.gz",
                    170_498_071,
                    "c58f30108f718f92721af3b95e74349a",
                ),
                "cifar-10-batches-py",
                tuple(
                    DataFile(f"data_batch_{number}", None, checksum)
                    for number, checksum in enumerate(
                        (
                            "c99cafc152244af753f735de768cd75f",
                            "d4bba439e000b95fd0a9bffe97cbabec",
                            "54ebc095f3ab1f0389bbae665268c751",
                            "634d18415352ddfa80567beed471001a",
                            "482c414d41f54cd18b22e5b47cb7c3cb",
                        ),
                        start=1,
                    )
                ),
                (DataFile("test_batch", None, "40351d587109b95175f43aff81a1287e"),),
            ),
        ),
    ),
    "cifar100": ImageSet(
        about="60,000 photographs of 3 x 32 x 32 bytes in 100 classes, 10,000 of them for testing",
        citation=_TINY,
        classes=100,
        label_bytes=2,
        label_key="fine_labels",
        forms=(
            ImageForm(
                "binary",
                Download(
                    _CIFAR + "cifar-100-binary.tar.gz",
                    "cifar-100-binary.tar.gz",
                    168_513_733,
                    "03b5dce01913d631647c71ecec9e9cb8",
                ),
                "cifar-100-binary",
                (
                    DataFile(
                        "train.bin",
                        50_000 * 3074,
                        "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
                    ),
                ),
                (
                    DataFile(
                        "test.bin",
                        10_000 * 3074,
                        "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
                    ),
                ),
            ),
            ImageForm(
                "python",
                Download(
                    _CIFAR + "cifar-100-python.tar.gz",
                    "cifar-100-python.tar.gz",
                    169_001_437,
                    "eb9058c3a382ffc7106e4002c42a8d85",
                ),
                "cifar-100-python",
                (DataFile("train", None, "16019d7e3df5f24257cddd939b257f8d"),),
                (DataFile("test", None, "f0ef6b0ae62326f3e7ffdfab6717acfc"),),
            ),
        ),
    ),
}

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
_EXOTIC = (
    "P. Baldi, P. Sadowski, D. Whiteson, Searching for Exotic Particles in High-Energy Physics "
    "with Deep Learning, Nature Communications 5, 4308 (2014)"
)

EVENT_SETS: Mapping[str, EventSet] = {
    "atlas-higgs-2014": EventSet(
        about="ATLAS Higgs challenge 2014: 818,238 simulated H -> tau tau events, 30 features",
        citation="ATLAS collaboration (2014), Dataset from the ATLAS Higgs Boson Machine Learning "
        "Challenge 2014, CERN Open Data Portal, DOI 10.7483/OPENDATA.ATLAS.ZBP2.M5T8 (CC0)",
        layout="atlas-higgs-2014",
        download=Download(
            "https://opendata.cern.ch/record/328/files/atlas-higgs-challenge-2014-v2.csv.gz",
            "atlas-higgs-challenge-2014-v2.csv.gz",
            None,
            None,
        ),
        files=("atlas-higgs-challenge-2014-v2*.*", "higgs-tautau/atlas-higgs-challenge-2014-v2*.*"),
    ),
    "uci-higgs": EventSet(
        about="UCI HIGGS: 11,000,000 simulated events, 28 features (CC BY 4.0)",
        citation=_EXOTIC + "; DOI 10.24432/C5V312",
        layout="uci-higgs",
        download=Download(
            _UCI + "00280/HIGGS.csv.gz",
            "HIGGS.csv.gz",
            2_816_407_858,
            "ea302c18164d4e3d916a1e2e83a9a8d07069fa6ebc7771e4c0540d54e593b698",
        ),
        files=("HIGGS*.*", "higgs-uci/HIGGS*.*"),
    ),
    "uci-susy": EventSet(
        about="UCI SUSY: 5,000,000 simulated events, 18 features (CC BY 4.0)",
        citation=_EXOTIC + "; DOI 10.24432/C54606",
        layout="uci-susy",
        download=Download(_UCI + "00279/SUSY.csv.gz", "SUSY.csv.gz", None, None),
        files=("SUSY*.*", "susy-uci/SUSY*.*"),
    ),
    "htautau": EventSet(
        about="Higgs -> tau tau against Z -> tau tau, 25 features, from `data simulate`",
        citation="P. Baldi, P. Sadowski, D. Whiteson, Enhanced Higgs Boson to tau+ tau- Search "
        "with Deep Learning, Phys. Rev. Lett. 114, 111801 (2015), whose own events are not public",
        layout="htautau",
        download=None,
        files=("htautau.*",),
    ),
}
