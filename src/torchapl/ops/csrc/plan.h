// How the work is cut into tasks: pure functions of the sizes, never of the number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "primitives.h"

namespace torchapl {

// A task has at least about this many elements; torch's own kernels use the same order of
// magnitude.
constexpr int64_t GRAIN = 16384;
// More tasks than threads even out the load; more partial sums than this cost memory traffic.
constexpr int64_t MOST_TASKS = 128;
// Rows shorter than this go by columns, where a vector may span several rows, unless samples are
// few. But rows of half its length and more only if their last vector would not be full.
constexpr int64_t SHORTEST_ROW = 128;
// Elements of a unit whose sums stay in the type of the arithmetic. Adding these up takes as long
// as some hundred elements.
constexpr int64_t STRIP = 4096;
// Rows of a unit that lie apart in memory are computed four at a time if they are shorter.
constexpr int64_t LONG_ROW = 1024;
// Rows of a column that are summed in the type of the arithmetic before the sum moves to double.
constexpr int64_t FLUSH_ROWS = 128;
// How far ahead memory is fetched, in elements of a strip and of a row of a block.
constexpr int64_t STRIP_AHEAD = 1024;
constexpr int64_t ROW_AHEAD = 256;
// Bytes of hinges and sums of a block of columns. The first-level cache also holds its rows of the
// data, but very short pieces of rows are slow to fetch.
constexpr int64_t L1_BUDGET = 24576;
// Bytes of hinges and sums of the units of a task whose rows are long: the more units, the longer
// the pieces of memory that are read in order. They stay in the second-level cache.
constexpr int64_t L2_BUDGET = 131072;
// Widest pieces of rows. Those that come from memory want to be long. Those of smaller maps come
// from a cache, and four of them, fetched ahead, have to fit the first-level one: with pieces as
// long as the others, (4096, 300) and S = 1 took 1.07 ReLUs in place of 0.82. But a large map with
// S = 1 then takes 0.98 in place of 0.92.
constexpr int64_t WIDEST = 1024;
constexpr int64_t WIDEST_BYTES = 1536;
constexpr int64_t SMALLER_MAP_BYTES = 32 << 20;
// Rows that share what is loaded for a column.
constexpr int64_t ROWS_AT_ONCE = 4;

// To wake other threads takes longer than the work of a map below both: the kernels took 56
// microseconds on two threads and 25 on one for (100, 274) and S = 8, beside other programs. Torch
// computes maps of fewer elements alone, too. The tasks are the same, and so are the results.
constexpr int64_t ALONE = 32768;
constexpr int64_t ALONE_PRODUCTS = 1 << 18;

inline bool goes_alone(int64_t elements, int64_t hinges) {
  return elements < ALONE && elements * hinges < ALONE_PRODUCTS;
}

inline int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

inline int64_t round_up(int64_t value, int64_t to) { return divide_up(value, to) * to; }

inline int64_t task_budget(int64_t elements) {
  return std::clamp<int64_t>(elements / GRAIN, 1, MOST_TASKS);
}

// What decides how wide a block of columns may be.
struct BlockLimits {
  int64_t budget;     // bytes for hinges and sums
  int64_t per_hinge;  // bytes that a column takes for a hinge and, in backward, its sums
  int64_t widest;     // columns

  template <typename E>
  static BlockLimits of(int64_t elements, bool sums) {
    constexpr int64_t size = sizeof(E);
    return {L1_BUDGET, static_cast<int64_t>((sums ? 4 : 2) * sizeof(Arithmetic<E>)),
            elements * size > SMALLER_MAP_BYTES ? WIDEST : WIDEST_BYTES / size};
  }
};

// A task is a chunk of outer indices, a range of units and a segment of the inner axis.
struct RowPlan {
  int64_t merge;  // outer indices whose sums of a unit are added up together
  int64_t chunk, chunks;
  int64_t range, ranges;
  int64_t segment, segments;

  RowPlan(int64_t outer, int64_t units, int64_t inner, int64_t hinges, BlockLimits limits) {
    // Fewer tasks, too, for longer pieces. Rows that are cut are long enough.
    const int64_t budget = std::min(task_budget(outer * units * inner), MOST_TASKS / 2);
    const int64_t fitting = inner > STRIP ? 1 : L2_BUDGET / (hinges * limits.per_hinge * LANES);
    merge = std::clamp<int64_t>(STRIP / inner, 1, outer);
    const int64_t least = divide_up(units, std::clamp<int64_t>(fitting, 1, units));
    chunks = std::clamp<int64_t>(divide_up(budget, least), 1, divide_up(outer, merge));
    chunk = round_up(divide_up(outer, chunks), merge);
    chunks = divide_up(outer, chunk);
    ranges = std::clamp<int64_t>(divide_up(budget, chunks), least, units);
    range = divide_up(units, ranges);
    ranges = divide_up(units, range);
    segments = std::clamp<int64_t>(divide_up(budget, ranges * chunks), 1, divide_up(inner, GRAIN));
    segment = round_up(divide_up(inner, segments), STRIP);
    segments = divide_up(inner, segment);
  }

  int64_t tasks() const { return chunks * ranges * segments; }
};

// The memory as a matrix whose columns each belong to one unit. A task is a block of columns, which
// holds whole units, and a chunk of rows.
struct ColumnPlan {
  int64_t repeat;   // outer indices side by side in one row of the matrix
  int64_t columns;  // of the matrix
  int64_t rows;     // complete ones
  int64_t ragged;   // columns of one more, incomplete row
  int64_t block, blocks;
  int64_t chunk, chunks;
  bool in_place;  // hinges are read and sums are made where the parameters and gradients are

  ColumnPlan(int64_t outer, int64_t units, int64_t inner, int64_t hinges, BlockLimits limits) {
    const int64_t fitting = limits.budget / (hinges * limits.per_hinge) / 16 * 16;
    const int64_t widest = std::clamp<int64_t>(fitting, SHORTEST_ROW, limits.widest);
    const int64_t period = units * inner;
    repeat = std::clamp<int64_t>(widest / period, 1, outer);
    columns = repeat * period;
    rows = outer / repeat;
    ragged = outer % repeat * period;
    if (columns <= widest) {
      block = columns;
    } else {
      const int64_t step = inner == 1 ? 16 : inner;
      block = round_up(divide_up(columns, divide_up(columns, widest)), step);
    }
    blocks = divide_up(columns, block);
    const int64_t wanted = blocks >= 32 ? 1 : divide_up(task_budget(outer * period), blocks);
    // Copying hinges and collecting sums must be little work beside the rows.
    const int64_t least = std::clamp<int64_t>(48 * hinges, 64, 3 * FLUSH_ROWS);
    chunk = round_up(
        divide_up(rows, std::clamp<int64_t>(wanted, 1, std::max<int64_t>(rows / least, 1))),
        ROWS_AT_ONCE);
    chunks = divide_up(rows, chunk);
    in_place = inner == 1 && repeat == 1 && rows <= FEW_ROWS;
  }

  int64_t tasks() const { return blocks * chunks; }
};

}  // namespace torchapl
