#include "kernels.h"

#include <torch/csrc/stable/c/shim.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "block.h"
#include "plan.h"
#include "view.h"

namespace torchapl {
namespace {

// Runs on torch's own threads: this function lives in libtorch, so that no second OpenMP runtime and no
// OpenMP flag of the compiler is needed.
template <typename Function>
void parallel(int64_t tasks, const Function& function) {
  if (tasks == 1) {
    function(0);
    return;
  }
  const auto callback = [](int64_t begin, int64_t end, void* context) {
    for (int64_t task = begin; task < end; ++task) (*static_cast<const Function*>(context))(task);
  };
  void* context = const_cast<void*>(static_cast<const void*>(&function));
  if (torch_parallel_for(0, tasks, 1, callback, context) != 0) {
    throw std::runtime_error("torchapl: torch's parallel_for failed");
  }
}

template <typename T, bool Back>
void run(Block<T>& block, const View<T>& view, int64_t at, int64_t out_at, int64_t rows, int64_t n,
         int64_t stride, int64_t out_stride, int64_t ahead) {
  T* out = view.out() + out_at;
  if constexpr (Back) {
    block.backward(view.x() + at, view.g() + at, out, rows, n, stride, out_stride, ahead);
  } else {
    block.forward(view.x() + at, out, rows, n, stride, out_stride, ahead);
  }
}

// Writes the gradients of n units of hinge s, from unit `first` on, given their two sums.
template <typename T>
void write_gradients(const Problem& p, const Primitives<T>& kernels, int64_t s, int64_t first,
                     int64_t n, const double* sum_a, const double* sum_b) {
  const int64_t index = s * p.units + first;
  if (p.grad_a != nullptr) kernels.finish(sum_a, nullptr, static_cast<T*>(p.grad_a) + index, n);
  if (p.grad_b != nullptr) {
    kernels.finish(sum_b, static_cast<const T*>(p.a) + index, static_cast<T*>(p.grad_b) + index, n);
  }
}

// Adds the parts of every sum in their order; partial is (parts, 2 * hinges, units).
template <typename T>
void add_parts(const Problem& p, const Primitives<T>& kernels, double* partial, int64_t parts) {
  const int64_t size = 2 * p.hinges * p.units;
  const int64_t range = divide_up(p.units, task_budget(size * parts));
  parallel(divide_up(p.units, range), [&](int64_t task) {
    const int64_t first = task * range, n = std::min(range, p.units - first);
    for (int64_t k = 0; k < 2 * p.hinges; ++k) {
      double* total = partial + k * p.units + first;
      for (int64_t q = 1; q < parts; ++q) {
        for (int64_t u = 0; u < n; ++u) total[u] += total[q * size + u];
      }
    }
    for (int64_t s = 0; s < p.hinges; ++s) {
      const double* sum_a = partial + s * p.units + first;
      write_gradients<T>(p, kernels, s, first, n, sum_a, sum_a + p.hinges * p.units);
    }
  });
}

// All elements of a strip belong to one unit: it is a matrix of LANES columns, and what is left over.
template <typename T, bool Back>
void run_strip(Block<T>& block, const View<T>& view, int64_t rows, int64_t n) {
  const bool kept = view.out_stride() != 0;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = r * view.stride(), out_at = r * view.out_stride();
    const int64_t whole = n / LANES * LANES;
    run<T, Back>(block, view, at, out_at, n / LANES, LANES, LANES, kept ? LANES : 0, view.ahead());
    if (whole < n) {
      run<T, Back>(block, view, at + whole, out_at + (kept ? whole : 0), 1, n - whole, 0, 0, 0);
    }
  }
}

template <typename T, bool Back>
void by_rows(const Problem& p, const Capability& capability) {
  const RowPlan plan(p.outer, p.units, p.inner);
  const bool sums = p.grad_a != nullptr || p.grad_b != nullptr;
  const int64_t parts = plan.chunks * plan.segments;
  const int64_t stride = p.units * p.inner;
  std::vector<double> partial(sums ? parts * 2 * p.hinges * p.units : 0);

  parallel(plan.tasks(), [&](int64_t task) {
    const int64_t segment = task % plan.segments;
    const int64_t unit = task / plan.segments % plan.ranges * plan.range;
    const int64_t chunk = task / plan.segments / plan.ranges;
    const int64_t last_outer = std::min(p.outer, (chunk + 1) * plan.chunk);
    const int64_t last_unit = std::min(p.units, unit + plan.range);
    const int64_t last_inner = std::min(p.inner, (segment + 1) * plan.segment);
    double* part = partial.data() + (chunk * plan.segments + segment) * 2 * p.hinges * p.units;
    Block<T> block(p, capability);
    block.allocate(LANES);
    View<T> view(p, capability, stride, plan.merge, std::min(STRIP, p.inner), STRIP_AHEAD);

    for (int64_t o = chunk * plan.chunk; o < last_outer; o += plan.merge) {
      const int64_t rows = std::min(plan.merge, last_outer - o);
      for (int64_t u = unit; u < last_unit; ++u) {
        block.select(u);
        for (int64_t i = segment * plan.segment; i < last_inner; i += STRIP) {
          const int64_t offset = o * stride + u * p.inner + i, n = std::min(STRIP, last_inner - i);
          view.open(offset, rows, n);
          run_strip<T, Back>(block, view, rows, n);
          view.close(offset, rows, n);
          if (!sums) continue;
          block.collapse();
          for (int64_t k = 0; k < 2 * p.hinges; ++k) part[k * p.units + u] += block.totals()[k];
        }
      }
    }
  });
  if (sums) add_parts<T>(p, primitives<T>(capability), partial.data(), parts);
}

template <typename T, bool Back>
void by_columns(const Problem& p, const Capability& capability) {
  const bool sums = p.grad_a != nullptr || p.grad_b != nullptr;
  ColumnPlan plan(p.outer, p.units, p.inner, p.hinges, sizeof(T));
  // Sums are made in the place of the gradients only where both are wanted.
  if (sums && (p.grad_a == nullptr || p.grad_b == nullptr)) plan.in_place = false;
  const int64_t size = 2 * p.hinges * p.units;
  const auto partial = uninitialised<double>(sums && plan.chunks > 1 ? plan.chunks * size : 0);
  const int64_t step = has_16_bits(p.storage) ? COPIED_ROWS : FLUSH_ROWS;

  parallel(plan.tasks(), [&](int64_t task) {
    const int64_t column = task % plan.blocks * plan.block;
    const int64_t width = std::min(plan.block, plan.columns - column);
    const int64_t row = task / plan.blocks * plan.chunk;
    const int64_t last = std::min(plan.rows, row + plan.chunk);
    Block<T> block(p, capability);
    const bool in_place = plan.in_place && width % LANES == 0;
    if (in_place) {
      block.select_in_place(column, width);
    } else {
      block.allocate(width);
      block.select(column / p.inner, std::min(width, p.units * p.inner) / p.inner, width);
    }
    View<T> view(p, capability, plan.columns, COPIED_ROWS, width, COPIED_ROWS * plan.columns);

    const auto visit = [&](int64_t r, int64_t rows, int64_t n) {
      const int64_t offset = r * plan.columns + column;
      view.open(offset, rows, n);
      run<T, Back>(block, view, 0, 0, rows, n, view.stride(), view.out_stride(), view.ahead());
      view.close(offset, rows, n);
    };
    for (int64_t r = row; r < last; r += step) {
      visit(r, std::min(step, last - r), width);
      if ((r + step - row) % FLUSH_ROWS == 0 && r + step < last) block.flush();
    }
    if (last == plan.rows && plan.ragged > 0) visit(last, 1, plan.ragged);
    if (!sums) return;
    if (in_place) {
      block.finish_in_place();
      return;
    }
    block.flush();

    block.collect();
    double* part = partial.get() + task / plan.blocks * size + block.first();
    for (int64_t s = 0; s < p.hinges; ++s) {
      const double *sum_a = block.totals(s), *sum_b = block.totals(p.hinges + s);
      if (plan.chunks == 1) {
        write_gradients<T>(p, primitives<T>(capability), s, block.first(), block.units(), sum_a, sum_b);
      } else {
        std::copy_n(sum_a, block.units(), part + s * p.units);
        std::copy_n(sum_b, block.units(), part + (p.hinges + s) * p.units);
      }
    }
  });
  if (sums && plan.chunks > 1) add_parts<T>(p, primitives<T>(capability), partial.get(), plan.chunks);
}

bool goes_by_rows(int64_t units, int64_t inner) {
  return units == 1 || inner >= SHORTEST_ROW;
}

template <bool Back>
void dispatch(const Problem& p, const Capability& capability) {
  const bool rows = goes_by_rows(p.units, p.inner);
  if (p.storage == Storage::float64) {
    rows ? by_rows<double, Back>(p, capability) : by_columns<double, Back>(p, capability);
  } else {
    rows ? by_rows<float, Back>(p, capability) : by_columns<float, Back>(p, capability);
  }
}

}  // namespace

void forward(const Problem& problem, const Capability& capability) {
  dispatch<false>(problem, capability);
}

void backward(const Problem& problem, const Capability& capability) {
  dispatch<true>(problem, capability);
}

int64_t tasks(int64_t outer, int64_t units, int64_t inner, int64_t hinges) {
  return goes_by_rows(units, inner) ? RowPlan(outer, units, inner).tasks()
                                    : ColumnPlan(outer, units, inner, hinges, sizeof(float)).tasks();
}

}  // namespace torchapl
