"""Separable natural evolution strategies (Schaul, Glasmachers and Schmidhuber 2011)."""

from __future__ import annotations

from math import log, sqrt

import torch
from torch import Tensor


class SNES:
    r"""Searches for the vector of least cost with a Gaussian of diagonal covariance.

    Every generation draws :math:`\theta_k = \mu + \sigma s_k`, orders the draws by cost and moves

    .. math::
        \mu \leftarrow \mu + \sigma \sum_k u_k s_k, \qquad
        \sigma \leftarrow \sigma \, e^{\frac{\eta}{2} \sum_k u_k (s_k^2 - 1)}

    with utilities u that depend on the ranks alone and
    :math:`\eta = (3 + \ln d) / (5 \sqrt{d})` for d dimensions.

    Args:
        mean: The :math:`\mu` to start from, one axis; changed in place by every generation.
        deviation: The :math:`\sigma`, of the same shape; changed in place.
        population: Draws per generation; ``4 + 3 ln d`` by default.

    Example:
        >>> mean, deviation = torch.zeros(3), torch.ones(3)
        >>> search = SNES(mean, deviation)
        >>> for _ in range(200):
        ...     draws = search.ask()
        ...     search.tell((draws - 2.0).square().sum(dim=1))
        >>> bool((mean - 2.0).abs().max() < 0.01)
        True
    """

    def __init__(self, mean: Tensor, deviation: Tensor, population: int | None = None) -> None:
        if mean.dim() != 1 or mean.shape != deviation.shape or mean.numel() == 0:
            raise ValueError(
                "mean and deviation must be vectors of one length, got "
                f"{tuple(mean.shape)} and {tuple(deviation.shape)}"
            )
        size = 4 + int(3 * log(mean.numel())) if population is None else population
        if size < 2:
            raise ValueError(f"population must be at least 2, got {population}")
        self.mean = mean
        self.deviation = deviation
        self.population = size
        self._samples: Tensor | None = None

    @torch.no_grad()
    def ask(self) -> Tensor:
        """Draw a generation, of shape ``(population, d)``."""
        shape = (self.population, self.mean.numel())
        self._samples = torch.randn(shape, dtype=self.mean.dtype, device=self.mean.device)
        return self.mean + self.deviation * self._samples

    @torch.no_grad()
    def tell(self, costs: Tensor) -> None:
        """Learn from the costs of the draws that ``ask`` returned; the least is the best."""
        if self._samples is None:
            raise ValueError("tell() needs the draws of ask(), which was not called before it")
        if costs.shape != (self.population,):
            raise ValueError(
                f"costs must have the shape ({self.population},), got {tuple(costs.shape)}"
            )
        # A draw whose cost is NaN ranks last.
        order = costs.nan_to_num(nan=float("inf"), posinf=float("inf")).argsort()
        samples = self._samples[order]
        utilities = self._utilities()[:, None]
        rate = (3 + log(self.mean.numel())) / (5 * sqrt(self.mean.numel()))
        self.mean += self.deviation * (utilities * samples).sum(dim=0)
        self.deviation *= (0.5 * rate * (utilities * (samples**2 - 1)).sum(dim=0)).exp()
        self._samples = None

    def _utilities(self) -> Tensor:
        ranks = torch.arange(1, self.population + 1).to(self.mean)
        raw = (log(self.population / 2 + 1) - ranks.log()).clamp_min(0)
        return raw / raw.sum() - 1 / self.population
