#include "kernels.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "block.h"
#include "parallel.h"
#include "plan.h"

namespace torchapl {
namespace {

template <bool Back, typename E>
void run(Block<E>& block, int64_t offset, int64_t rows, int64_t n, int64_t stride, int64_t ahead) {
  if constexpr (Back) {
    block.backward(offset, rows, n, stride, ahead);
  } else {
    block.forward(offset, rows, n, stride, ahead);
  }
}

template <typename E>
bool parameters_are_finite(const Problem& p, const Primitives<E>& kernels) {
  const auto finite = [&](const void* values) {
    return kernels.all_finite(static_cast<const Arithmetic<E>*>(values), p.hinges * p.units);
  };
  return finite(p.a) && finite(p.b);
}

// Writes the gradients of n units, from unit `first` on. Their sums are two rows for every hinge,
// which follow each other at `pitch`.
template <typename E, typename T = Arithmetic<E>>
void write_gradients(const Problem& p, const Primitives<E>& kernels, bool refers, int64_t first,
                     int64_t n, const double* sums, int64_t pitch) {
  const T *a = static_cast<const T*>(p.a) + first, *b = static_cast<const T*>(p.b) + first;
  const auto place = [&](void* target, int64_t s) {
    return target == nullptr ? nullptr : static_cast<T*>(target) + s * p.units + first;
  };
  const auto reference = uninitialised<T>(refers ? n : 0);
  if (refers) kernels.refer(b, p.hinges, p.units, LANES, reference.get(), n);
  for (int64_t s = 0; s < p.hinges; ++s) {
    kernels.finish(sums + 2 * s * pitch, sums + (2 * s + 1) * pitch, a + s * p.units,
                   b + s * p.units, reference.get(), place(p.grad_a, s), place(p.grad_b, s), n);
  }
}

// Adds the parts of every sum in their order; partial is (parts, hinges, 2, units).
template <typename E>
void add_parts(const Problem& p, const Primitives<E>& kernels, bool refers, double* partial,
               int64_t parts) {
  const int64_t size = 2 * p.hinges * p.units;
  const int64_t range = divide_up(p.units, task_budget(size * parts));
  parallel(divide_up(p.units, range), false, [&](int64_t task) {
    const int64_t first = task * range, n = std::min(range, p.units - first);
    for (int64_t k = 0; k < 2 * p.hinges; ++k) {
      double* total = partial + k * p.units + first;
      for (int64_t q = 1; q < parts; ++q) {
        for (int64_t u = 0; u < n; ++u) total[u] += total[q * size + u];
      }
    }
    write_gradients(p, kernels, refers, first, n, partial + first, p.units);
  });
}

// All elements of a strip belong to one unit: it is a matrix of LANES columns, and what is left
// over.
template <bool Back, typename E>
void run_strip(Block<E>& block, int64_t offset, int64_t n) {
  const int64_t whole = n / LANES * LANES;
  run<Back>(block, offset, n / LANES, LANES, LANES, STRIP_AHEAD);
  if (whole < n) run<Back>(block, offset + whole, 1, n - whole, 0, 0);
}

// Rows of one unit: short ones four at a time.
template <bool Back, typename E>
void run_rows(Block<E>& block, int64_t offset, int64_t rows, int64_t n, int64_t stride) {
  if (rows == ROWS_AT_ONCE) return run<Back>(block, offset, rows, n, stride, ROW_AHEAD);
  for (int64_t r = 0; r < rows; ++r) run_strip<Back>(block, offset + r * stride, n);
}

// A task goes through its memory in order, from unit to unit: each has hinges and sums of its own.
template <typename E, bool Back>
void by_rows(const Problem& p, const Primitives<E>& kernels) {
  const bool sums = p.grad_a != nullptr || p.grad_b != nullptr;
  const auto limits = BlockLimits::of<E>(p.outer * p.units * p.inner, sums);
  const RowPlan plan(p.outer, p.units, p.inner, p.hinges, limits);
  const bool finite = parameters_are_finite(p, kernels), refers = sums && finite;
  const int64_t parts = plan.chunks * plan.segments;
  const int64_t together = p.inner < LONG_ROW ? ROWS_AT_ONCE : 1;
  const bool alone = goes_alone(p.outer * p.units * p.inner, p.hinges);
  std::vector<double> partial(sums ? parts * 2 * p.hinges * p.units : 0);

  parallel(plan.tasks(), alone, [&](int64_t task) {
    const int64_t segment = task % plan.segments;
    const int64_t first = task / plan.segments % plan.ranges * plan.range;
    const int64_t chunk = task / plan.segments / plan.ranges;
    const int64_t last_outer = std::min(p.outer, (chunk + 1) * plan.chunk);
    const int64_t last_inner = std::min(p.inner, (segment + 1) * plan.segment);
    const int64_t units = std::min(plan.range, p.units - first);
    double* part = partial.data() + (chunk * plan.segments + segment) * 2 * p.hinges * p.units;
    Block<E> block(p, kernels, finite, refers);
    block.select_units(first, units);
    std::vector<double> collapsed(sums ? 2 * p.hinges : 0);

    for (int64_t o = chunk * plan.chunk; o < last_outer; o += plan.merge) {
      const int64_t end = std::min(o + plan.merge, last_outer);
      for (int64_t i = segment * plan.segment; i < last_inner; i += STRIP) {
        const int64_t n = std::min(STRIP, last_inner - i);
        for (int64_t r = o; r < end; r += together) {
          for (int64_t u = 0; u < units; ++u) {
            block.focus(u);
            const int64_t offset = (r * p.units + first + u) * p.inner + i;
            run_rows<Back>(block, offset, std::min(together, end - r), n, p.units * p.inner);
          }
        }
        for (int64_t u = 0; u < units && sums; ++u) {
          block.focus(u);
          block.collapse(collapsed.data());
          for (int64_t k = 0; k < 2 * p.hinges; ++k) part[k * p.units + first + u] += collapsed[k];
        }
      }
    }
  });
  if (sums) add_parts(p, kernels, refers, partial.data(), parts);
}

template <typename E, bool Back>
void by_columns(const Problem& p, const Primitives<E>& kernels) {
  const bool sums = p.grad_a != nullptr || p.grad_b != nullptr;
  const auto limits = BlockLimits::of<E>(p.outer * p.units * p.inner, sums);
  ColumnPlan plan(p.outer, p.units, p.inner, p.hinges, limits);
  // Sums are made in the place of the gradients only where both are wanted.
  if (sums && (p.grad_a == nullptr || p.grad_b == nullptr)) plan.in_place = false;
  // Parts of a sum are made alike.
  const bool finite = plan.chunks > 1 && parameters_are_finite(p, kernels);
  const bool refers = sums && !plan.in_place && (finite || plan.chunks == 1);
  const int64_t size = 2 * p.hinges * p.units;
  const bool alone = goes_alone(p.outer * p.units * p.inner, p.hinges);
  const auto partial = uninitialised<double>(sums && plan.chunks > 1 ? plan.chunks * size : 0);

  parallel(plan.tasks(), alone, [&](int64_t task) {
    const int64_t column = task % plan.blocks * plan.block;
    const int64_t width = std::min(plan.block, plan.columns - column);
    const int64_t row = task / plan.blocks * plan.chunk;
    const int64_t last = std::min(plan.rows, row + plan.chunk);
    Block<E> block(p, kernels, finite, refers);
    const bool in_place = plan.in_place && width % LANES == 0;
    if (in_place) {
      block.select_in_place(column, width);
    } else {
      block.select(column / p.inner, std::min(width, p.units * p.inner) / p.inner, width);
    }

    // Further ahead lie the columns of other blocks.
    const int64_t ahead = std::min(ROW_AHEAD, 2 * width / 3 / LANES * LANES);
    const auto visit = [&](int64_t r, int64_t rows, int64_t n) {
      run<Back>(block, r * plan.columns + column, rows, n, plan.columns, ahead);
    };
    for (int64_t r = row; r < last; r += FLUSH_ROWS) {
      visit(r, std::min(FLUSH_ROWS, last - r), width);
      if (r + FLUSH_ROWS < last) block.flush();
    }
    if (last == plan.rows && plan.ragged > 0) visit(last, 1, plan.ragged);
    if (!sums || in_place) return;
    if (plan.chunks == 1 && block.write_gradients()) return;
    block.flush();
    if (plan.chunks == 1) {
      block.collect();
      write_gradients(p, kernels, block.refers(), block.first(), block.units(), block.totals(),
                      block.pitch());
      return;
    }
    double* part = partial.get() + task / plan.blocks * size + block.first();
    if (block.copy_totals(part, p.units)) return;
    block.collect();
    for (int64_t k = 0; k < 2 * p.hinges; ++k) {
      std::copy_n(block.totals() + k * block.pitch(), block.units(), part + k * p.units);
    }
  });
  if (sums && plan.chunks > 1) add_parts(p, kernels, refers, partial.get(), plan.chunks);
}

bool goes_by_rows(int64_t outer, int64_t units, int64_t inner, int64_t hinges) {
  if (units == 1 || inner >= SHORTEST_ROW) return true;
  // All hinges are laid out for the `outer` elements of a column, which takes as long as the rest
  // where these are few.
  if (inner >= LANES && 10 * outer <= inner * std::min<int64_t>(hinges, 8)) return true;
  return inner >= SHORTEST_ROW / 2 && inner % LANES == 0;
}

template <typename E, bool Back>
void by_either(const Problem& p, const Capability& capability) {
  const Primitives<E>& kernels = capability.primitives;
  goes_by_rows(p.outer, p.units, p.inner, p.hinges) ? by_rows<E, Back>(p, kernels)
                                                    : by_columns<E, Back>(p, kernels);
}

template <bool Back, typename... E>
void dispatch(ElementList<E...>, const Problem& p, const Capability& capability) {
  int storage = 0;
  ((storage++ == static_cast<int>(p.storage) ? by_either<E, Back>(p, capability) : void()), ...);
}

}  // namespace

void forward(const Problem& problem, const Capability& capability) {
  dispatch<false>(Elements{}, problem, capability);
}

void backward(const Problem& problem, const Capability& capability) {
  dispatch<true>(Elements{}, problem, capability);
}

int64_t tasks(int64_t outer, int64_t units, int64_t inner, int64_t hinges) {
  const auto limits = BlockLimits::of<float>(outer * units * inner, true);
  return goes_by_rows(outer, units, inner, hinges)
             ? RowPlan(outer, units, inner, hinges, limits).tasks()
             : ColumnPlan(outer, units, inner, hinges, limits).tasks();
}

}  // namespace torchapl
