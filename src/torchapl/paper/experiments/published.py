"""The numbers of the paper's tables (arXiv 1412.6830): test error in percent, AUC, significance."""

from __future__ import annotations

from torchapl.paper.config import Published


def _five(mean: float, std: float) -> Published:
    return Published(mean, std, trials=5)


# Table 1, by network and row; columns are data sets, "-aug" with augmentation.
TABLE1: dict[tuple[str, str], dict[str, Published]] = {
    ("dropout-cnn", ""): {"cifar10": Published(12.61), "cifar100": Published(37.20)},
    ("channel-out", ""): {"cifar10": Published(13.2), "cifar100": Published(36.59)},
    ("maxout", ""): {
        "cifar10": Published(11.68),
        "cifar100": Published(38.57),
        "cifar10-aug": Published(9.38),
    },
    ("probout", ""): {
        "cifar10": Published(11.35),
        "cifar100": Published(38.14),
        "cifar10-aug": Published(9.39),
    },
    ("maxout", "stollenga"): {"cifar10-aug": Published(9.61), "cifar100-aug": Published(34.54)},
    ("dasnet", ""): {"cifar10-aug": Published(9.22), "cifar100-aug": Published(33.78)},
    ("cnn", "relu"): {
        "cifar10": _five(12.56, 0.26),
        "cifar100": _five(37.34, 0.28),
        "cifar10-aug": _five(9.99, 0.09),
        "cifar100-aug": _five(34.50, 0.12),
    },
    ("cnn", "leaky"): {"cifar10": _five(11.86, 0.04), "cifar100": _five(35.82, 0.34)},
    ("cnn", "apl"): {
        "cifar10": _five(11.38, 0.09),
        "cifar100": _five(34.54, 0.19),
        "cifar10-aug": _five(9.89, 0.19),
        "cifar100-aug": _five(33.88, 0.45),
    },
    ("nin-lin", ""): {
        "cifar10": Published(10.41),
        "cifar100": Published(35.68),
        "cifar10-aug": Published(8.81),
    },
    ("nin-dsn", ""): {
        "cifar10": Published(9.78),
        "cifar100": Published(34.57),
        "cifar10-aug": Published(8.22),
    },
    ("nin", "relu"): {
        "cifar10": _five(9.67, 0.11),
        "cifar100": _five(35.96, 0.13),
        "cifar10-aug": _five(7.73, 0.13),
        "cifar100-aug": _five(32.75, 0.13),
    },
    ("nin", "leaky"): {"cifar10": _five(9.75, 0.22), "cifar100": _five(36.00, 0.36)},
    ("nin", "apl"): {
        "cifar10": _five(9.59, 0.24),
        "cifar100": _five(34.40, 0.16),
        "cifar10-aug": _five(7.51, 0.14),
        "cifar100-aug": _five(30.83, 0.24),
    },
}

# Table 3: hinges per unit of the CIFAR-10 CNN, and the ReLU baseline.
TABLE3: dict[str, Published] = {
    "relu": _five(12.56, 0.26),
    "s1-frozen": _five(12.55, 0.11),
    "s1": _five(11.59, 0.16),
    "s2": _five(11.73, 0.23),
    "s5": _five(11.38, 0.09),
    "s10": _five(11.60, 0.16),
}

# Table 2: AUC and expected discovery significance.
TABLE2: dict[str, Published] = {
    "baldi": Published(0.802, significance=3.37),
    "baldi-ensemble": Published(0.803, significance=3.39),
    "relu": Published(0.803, 0.0001, trials=4, significance=3.38, significance_std=0.008),
    "apl": Published(0.804, 0.0002, trials=4, significance=3.41, significance_std=0.006),
}

# The table commented out in the paper's source: learned curves, and ReLU put in their place.
ABLATION: dict[str, tuple[Published, Published]] = {
    "cifar10": (Published(11.45), Published(50.75)),
    "cifar100": (Published(34.22), Published(48.1)),
    "higgs": (Published(0.804, significance=3.40), Published(0.544, significance=0.514)),
}
