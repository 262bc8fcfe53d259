"""Best uniform approximation by a continuous piecewise-linear function with free knots.

A function with error at most e runs inside the tube f - e .. f + e. The fewest straight links that
pass through such a tube are found greedily: go as far as one line can, then turn. Bisection on e
then gives the smallest error for a number of links, a global optimum and not only a local one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

Points = Sequence[float]


class Line(NamedTuple):
    """The straight line slope*x + intercept."""

    slope: float
    intercept: float


def fewest_links(
    x: Points, lower: Points, upper: Points, *, limit: int, start: Line | None = None
) -> list[Line] | None:
    """Return the fewest lines that pass all gates in order; None if that takes more than ``limit``.

    Consecutive lines cross between the gates where the one is left for the other.

    Args:
        x: Positions of the gates, ascending.
        lower: Lower ends of the gates.
        upper: Upper ends.
        limit: How many lines are allowed.
        start: A line that has to be the first one, if given.
    """
    lines: list[Line] = []
    low_from = up_from = 0
    if start is not None:
        lines.append(start)
        outside = _first_missed(x, lower, upper, start)
        if outside == len(x):
            return lines
        if start.slope * x[outside] + start.intercept < lower[outside]:
            low_from = outside
        else:
            up_from = outside
    while len(lines) < limit:
        line, low_from, up_from = _longest_line(x, lower, upper, low_from, up_from)
        lines.append(line)
        if min(low_from, up_from) == len(x):
            return lines
    return None


def best_lines(
    x: Points, y: Points, *, links: int, start: Line | None = None
) -> tuple[float, list[Line]]:
    """Return the smallest largest error at the samples (x, y), and lines that have it.

    Args:
        x: Positions of the samples, ascending.
        y: The samples.
        links: How many lines are allowed.
        start: A line that has to be the first one, if given; it passes through the first sample,
            which is then met exactly.
    """
    scale = max(map(abs, y)) or 1.0
    low, high = 0.0, scale
    for step in (8, 1):
        gates, middle = x[::step], y[::step]

        def attempt(
            error: float, gates: Points = gates, middle: Points = middle
        ) -> list[Line] | None:
            lower, upper = [v - error for v in middle], [v + error for v in middle]
            if start is not None:
                lower[0] = upper[0] = middle[0]
            return fewest_links(gates, lower, upper, limit=links, start=start)

        high, lines = _bisect(attempt, low, high, negligible=1e-12 * scale)
        # Every eighth sample bounds the error from below, and nearly reaches it.
        low, high = high * (1 - 1e-6), high * 1.01
    return high, lines


def _bisect(
    attempt: Callable[[float], list[Line] | None], low: float, high: float, negligible: float
) -> tuple[float, list[Line]]:
    best = attempt(high)
    while best is None:
        low, high = high, 2 * high
        best = attempt(high)
    # An error that is rounding alone: the function is piecewise linear itself.
    while high - low > 1e-7 * high and high > negligible:
        middle = (low + high) / 2
        lines = attempt(middle)
        if lines is None:
            low = middle
        else:
            high, best = middle, lines
    return high, best


def _first_missed(x: Points, lower: Points, upper: Points, line: Line) -> int:
    for j, position in enumerate(x):
        if not lower[j] <= line.slope * position + line.intercept <= upper[j]:
            return j
    return len(x)


def _longest_line(
    x: Points, lower: Points, upper: Points, low_from: int, up_from: int
) -> tuple[Line, int, int]:
    """Return the line that passes most gates, and where the constraints of the next line begin.

    A line fits lower ends i and upper ends j if its slope is at most (u_j - l_i) / (x_j - x_i) for
    every i left of j, and at least (l_i - u_j) / (x_i - x_j) for every j left of i. The steepest
    one turns about an upper end q. If even that stays below the gate at r, the next line may leave
    it anywhere between q and r: it has to pass below the upper ends from q on and above the lower
    ones from r on.
    """
    lows, ups = _Hull(1.0), _Hull(-1.0)
    steepest, flattest = float("inf"), float("-inf")
    top = bottom = 0
    for j in range(min(low_from, up_from), len(x)):
        position = x[j]
        if j >= up_from:
            slope = lows.tangent(position, upper[j])
            if slope is not None and slope < flattest:
                return _through(x, lower, bottom, flattest), bottom, j
        else:
            slope = None
        if j >= low_from:
            need = ups.tangent(position, lower[j])
            if need is not None and need > steepest:
                return _through(x, upper, top, steepest), j, top
            if need is not None and need >= flattest:
                flattest, bottom = need, j
            lows.add(position, lower[j])
        if j >= up_from:
            if slope is not None and slope <= steepest:
                steepest, top = slope, j
            ups.add(position, upper[j])
    slope = _between(flattest, steepest)
    low = max(lower[j] - slope * x[j] for j in range(low_from, len(x)))
    high = min(upper[j] - slope * x[j] for j in range(up_from, len(x)))
    return Line(slope, (low + high) / 2), len(x), len(x)


def _through(x: Points, ends: Points, pivot: int, slope: float) -> Line:
    return Line(slope, ends[pivot] - slope * x[pivot])


def _between(low: float, high: float) -> float:
    if low == float("-inf"):
        return 0.0 if high == float("inf") else min(high, 0.0)
    return max(low, 0.0) if high == float("inf") else (low + high) / 2


class _Hull:
    """The upper (side 1) or lower (side -1) hull of points that come from left to right."""

    def __init__(self, side: float) -> None:
        self.side = side
        self.points: list[tuple[float, float]] = []

    def add(self, x: float, y: float) -> None:
        points = self.points
        while len(points) > 1:
            (x0, y0), (x1, y1) = points[-2], points[-1]
            if ((y1 - y0) * (x - x0) - (y - y0) * (x1 - x0)) * self.side > 0:
                break
            points.pop()
        points.append((x, y))

    def tangent(self, x: float, y: float) -> float | None:
        """Return the slope of the tangent from (x, y), right of the hull; None if it is empty.

        The slopes to the hull's points fall and then rise (side 1), so bisection finds the
        extremum.
        """
        points = self.points
        if not points:
            return None
        low, high = 0, len(points) - 1
        while low < high:
            middle = (low + high) // 2
            (x0, y0), (x1, y1) = points[middle], points[middle + 1]
            if ((y - y0) * (x - x1) - (y - y1) * (x - x0)) * self.side > 0:
                low = middle + 1
            else:
                high = middle
        return (y - points[low][1]) / (x - points[low][0])
