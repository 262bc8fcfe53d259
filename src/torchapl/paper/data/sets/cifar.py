"""CIFAR-10 and CIFAR-100.

Archives, sizes and MD5 sums as on https://www.cs.toronto.edu/~kriz/cifar.html (the page
rounds sizes to MB; the exact ones are the server's Content-Length). The page publishes no sums for
the files inside. Their SHA-256 (binary form) come from files unpacked from archives with the
published MD5; the MD5 of the python form are the ones that torchvision checks
(``torchvision/datasets/cifar.py``).
"""

from __future__ import annotations

from functools import partial

from torchapl.paper.data import cifar
from torchapl.paper.data.catalogue import (
    DATA_SETS,
    DataFile,
    DataSet,
    Download,
    ImageForm,
    ImageSet,
)

_CIFAR = "https://www.cs.toronto.edu/~kriz/"
_TINY = (
    "A. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, technical report, "
    "University of Toronto, 2009"
)
_RECORDS_10 = 10_000 * 3073

DATA_SETS.register(
    DataSet(
        "cifar10",
        "CIFAR-10",
        about="60,000 photographs of 3 x 32 x 32 bytes in 10 classes, 10,000 of them for testing",
        load=partial(cifar.load, "cifar10"),
        rows=50_000,
        stand_ins={"smoke": "toy-images"},
        citation=_TINY,
        files=ImageSet(
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
    )
)
DATA_SETS.register(
    DataSet(
        "cifar100",
        "CIFAR-100",
        about="60,000 photographs of 3 x 32 x 32 bytes in 100 classes, 10,000 of them for testing",
        load=partial(cifar.load, "cifar100"),
        rows=50_000,
        stand_ins={"smoke": "toy-images"},
        citation=_TINY,
        files=ImageSet(
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
    )
)
