"""What an experiment is: its data, its network, its row. Names are made from it, never read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Key:
    """The identity of an experiment of the paper's tables.

    Attributes:
        data: Which data set, as names call it.
        augmented: Whether its images are cropped and mirrored.
        network: Which network, as names call it.
        row: Which activation of the network; empty where it has but one.

    Example:
        >>> Key("cifar10", True, "nin", "apl").name, Key("cifar100", False, "maxout").name
        ('cifar10-aug-nin-apl', 'cifar100-maxout')
    """

    data: str
    augmented: bool
    network: str
    row: str = ""

    @property
    def column(self) -> str:
        """The column of a table that it stands in."""
        return f"{self.data}-aug" if self.augmented else self.data

    @property
    def name(self) -> str:
        """The experiment's name."""
        return "-".join(word for word in (self.column, self.network, self.row) if word)
