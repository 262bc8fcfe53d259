"""Best uniform approximation by a continuous piecewise-linear function with free knots.

A function with error at most e runs inside the tube f - e .. f + e. The fewest straight links that
pass through such a tube are found greedily: go as far as one line can, then turn. Bisection on e
then gives the smallest error for a number of links, a global optimum and not only a local one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Points = Sequence[float]
# Of the way between two gates: next to the first.
_BESIDE = 1e-9


class Line(NamedTuple):
    """The straight line slope*x + intercept."""

    slope: float
    intercept: float


class _From(NamedTuple):
    """Where the constraints of one side begin: at a gate, and at a point before it if given."""

    gate: int
    point: tuple[float, float] | None = None


def fewest_links(
    x: Points,
    lower: Points,
    upper: Points,
    *,
    limit: int,
    between: bool = True,
    start: Line | None = None,
) -> list[Line] | None:
    """Return the fewest lines that pass all gates in order; None if that takes more than ``limit``.

    Args:
        x: Positions of the gates, ascending.
        lower: Lower ends of the gates.
        upper: Upper ends.
        limit: How many lines are allowed.
        between: Whether also between the gates consecutive lines have to cross inside the tube,
            which is straight there.
        start: A line that has to be the first one, if given; it begins at gate 0.
    """
    lines: list[Line] = []
    low = up = _From(0)
    if start is not None:
        lines.append(start)
        j = _first_missed(x, lower, upper, start)
        if j == len(x):
            return lines
        # The way to gate 1 is no part of the tube: gate 0 says where the next line may begin.
        if start.slope * x[j] + start.intercept < lower[j]:
            low = _From(j, _exit(start, x, lower, j, _From(1)))
        else:
            up = _From(j, _exit(start, x, upper, j, _From(1)))
    while len(lines) < limit:
        if not between:
            low, up = _From(low.gate), _From(up.gate)
        line, low, up = _longest_line(x, lower, upper, low, up)
        lines.append(line)
        if min(low.gate, up.gate) == len(x):
            return lines
    return None


def best_lines(
    x: Points,
    y: Points,
    *,
    links: int,
    bounds: tuple[float, float],
    resolution: float,
    between: bool = True,
    start: Line | None = None,
) -> tuple[float, list[Line]]:
    """Return the smallest largest error at the samples (x, y), and lines that have it.

    Args:
        x: Positions of the samples, ascending.
        y: The samples.
        links: How many lines are allowed.
        bounds: An error that cannot be reached, or 0, and a guess of one that can.
        resolution: The part of the error by which it may be larger than the smallest.
        between: As in :func:`fewest_links`.
        start: A line that has to be the first one, if given; it passes through the first sample,
            which is then met exactly.
    """

    def attempt(error: float) -> list[Line] | None:
        lower, upper = [v - error for v in y], [v + error for v in y]
        if start is not None:
            lower[0] = upper[0] = y[0]
        return fewest_links(x, lower, upper, limit=links, between=between, start=start)

    low, high = bounds
    lines = attempt(high)
    while lines is None:
        low, high = high, 1.1 * high
        lines = attempt(high)
    negligible = 1e-13 * max(map(abs, y))
    while high - low > resolution * high and high > negligible:
        middle = (low + high) / 2
        better = attempt(middle)
        if better is None:
            low = middle
        else:
            high, lines = middle, better
    return high, lines


def _first_missed(x: Points, lower: Points, upper: Points, line: Line) -> int:
    for j, position in enumerate(x):
        if not lower[j] <= line.slope * position + line.intercept <= upper[j]:
            return j
    return len(x)


def _longest_line(
    x: Points, lower: Points, upper: Points, low: _From, up: _From
) -> tuple[Line, _From, _From]:
    """Return the line that goes furthest, and where the constraints of the next line begin.

    A line fits lower ends i and upper ends j if its slope is at most (u_j - l_i) / (x_j - x_i) for
    every i left of j, and at least (l_i - u_j) / (x_i - x_j) for every j left of i. The steepest
    one turns about an upper end q. If even that leaves the tube below, at r, the next line may
    leave it anywhere between q and r: it has to pass below the upper ends from q on, above the
    point r, and above the lower ends right of it.
    """
    lows, ups = _Hull(1.0), _Hull(-1.0)
    steepest, flattest = float("inf"), float("-inf")
    top, bottom = up, low
    top_point = bottom_point = (0.0, 0.0)
    for j in range(min(low.gate, up.gate), len(x)):
        if j == low.gate and low.point is not None:
            need = ups.tangent(*low.point)
            if need is not None:
                flattest, bottom, bottom_point = need, low, low.point
            lows.add(*low.point)
        if j == up.gate and up.point is not None:
            room = lows.tangent(*up.point)
            if room is not None:
                steepest, top, top_point = room, up, up.point
            ups.add(*up.point)
        room = lows.tangent(x[j], upper[j]) if j >= up.gate else None
        need = ups.tangent(x[j], lower[j]) if j >= low.gate else None
        if room is not None and room < flattest:
            line = _through(bottom_point, flattest)
            return line, bottom, _From(j, _exit(line, x, upper, j, up))
        if need is not None and need > steepest:
            line = _through(top_point, steepest)
            return line, _From(j, _exit(line, x, lower, j, low)), top
        if room is not None and room <= steepest:
            steepest, top, top_point = room, _From(j), (x[j], upper[j])
        if need is not None and need >= flattest:
            flattest, bottom, bottom_point = need, _From(j), (x[j], lower[j])
        if j >= low.gate:
            lows.add(x[j], lower[j])
        if j >= up.gate:
            ups.add(x[j], upper[j])
    slope = _between(flattest, steepest)
    least = max(py - slope * px for px, py in lows.points)
    most = min(py - slope * px for px, py in ups.points)
    end = _From(len(x))
    return Line(slope, (least + most) / 2), end, end


def _exit(line: Line, x: Points, ends: Points, j: int, since: _From) -> tuple[float, float] | None:
    """Return where a line crosses the edge of the tube on its way to gate j, if it does."""
    if j > since.gate:
        x0, y0 = x[j - 1], ends[j - 1]
    elif since.point is not None:
        x0, y0 = since.point
    else:
        return None
    inside = abs(line.slope * x0 + line.intercept - y0)
    outside = abs(line.slope * x[j] + line.intercept - ends[j])
    if outside == 0:
        return None
    # A line that touches the edge at x0 leaves right of it: the hulls have what is at x0 already.
    position = x0 + (x[j] - x0) * max(inside / (inside + outside), _BESIDE)
    if not x0 < position < x[j]:
        return None
    return position, line.slope * position + line.intercept


def _through(point: tuple[float, float], slope: float) -> Line:
    return Line(slope, point[1] - slope * point[0])


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
