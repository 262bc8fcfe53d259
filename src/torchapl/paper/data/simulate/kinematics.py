"""Momenta ``(px, py, pz, E)`` in GeV along the last axis of arrays, and what is read off them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def pt(momentum: Array) -> Array:
    """Transverse momentum."""
    return np.asarray(np.hypot(momentum[..., 0], momentum[..., 1]))


def phi(momentum: Array) -> Array:
    """Azimuth, from -pi to pi."""
    return np.asarray(np.arctan2(momentum[..., 1], momentum[..., 0]))


def eta(momentum: Array) -> Array:
    """Pseudorapidity; 0 for a vanishing momentum."""
    across = pt(momentum)
    slope = np.divide(momentum[..., 2], across, out=np.zeros_like(across), where=across > 0)
    return np.asarray(np.arcsinh(slope))


def mass(momentum: Array) -> Array:
    """Invariant mass."""
    square = momentum[..., 3] ** 2 - (momentum[..., :3] ** 2).sum(-1)
    return np.asarray(np.sqrt(np.maximum(square, 0.0)))


def cross(one: Array, other: Array) -> Array:
    """Area spanned by two momenta in the transverse plane, with its sign."""
    return np.asarray(one[..., 0] * other[..., 1] - one[..., 1] * other[..., 0])


def delta_phi(one: Array, other: Array) -> Array:
    """Difference of azimuth, from 0 to pi."""
    dot = one[..., 0] * other[..., 0] + one[..., 1] * other[..., 1]
    return np.asarray(np.abs(np.arctan2(cross(one, other), dot)))


def delta_r(one: Array, other: Array) -> Array:
    """Distance in pseudorapidity and azimuth."""
    return np.asarray(np.hypot(eta(one) - eta(other), delta_phi(one, other)))


def boost(momentum: Array, frame: Array, *, inverse: bool = False) -> Array:
    """Carry momenta from the rest frame of ``frame`` to where ``frame`` is measured, or back.

    Example:
        >>> boost(np.array([[0.0, 0.0, 0.0, 1.0]]), np.array([[0.0, 0.0, 3.0, 5.0]]))
        array([[0.  , 0.  , 0.75, 1.25]])
    """
    rest = mass(frame)[:, None]
    direction = -frame[:, :3] if inverse else frame[:, :3]
    along = (direction * momentum[:, :3]).sum(1, keepdims=True)
    energy = momentum[:, 3:]
    factor = (along / (frame[:, 3:] + rest) + energy) / rest
    new_energy = (frame[:, 3:] * energy + along) / rest
    return np.concatenate([momentum[:, :3] + factor * direction, new_energy], axis=1)
