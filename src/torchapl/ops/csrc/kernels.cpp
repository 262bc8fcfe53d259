#include "kernels.h"

#include <torch/csrc/stable/c/shim.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <vector>

#include "plan.h"

namespace torchapl {
namespace {

template <typename T>
const Primitives<T>& primitives(const Capability& capability) {
  if constexpr (sizeof(T) == sizeof(double)) {
    return capability.twice;
  } else {
    return capability.single;
  }
}

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

template <typename T>
std::unique_ptr<T[]> uninitialised(int64_t size) {
  return std::unique_ptr<T[]>(new T[size]);
}

// Access to `width` elements of `rows` rows as T: in place, or through a copy where storage has 16 bits.
template <typename T>
class View {
 public:
  View(const Problem& problem, const Capability& capability, int64_t stride, int64_t rows,
       int64_t width)
      : problem_(problem), convert_(capability.convert), stride_(stride) {
    copied_ = problem.storage == Storage::bfloat16 || problem.storage == Storage::float16;
    pitch_ = round_up(width, 16);
    if (copied_) {
      const int64_t size = rows * pitch_;
      copies_ = uninitialised<T>(3 * size);
      x_ = copies_.get();
      g_ = x_ + size;
      out_ = g_ + size;
    } else if (problem.out == nullptr) {
      copies_ = uninitialised<T>(pitch_);
      out_ = copies_.get();
    }
  }

  // Makes x, g and out point at the given place.
  void at(int64_t offset, int64_t rows, int64_t n) {
    if (copied_) {
      read(problem_.x, x_, offset, rows, n);
      if (problem_.g != nullptr) read(problem_.g, g_, offset, rows, n);
      return;
    }
    x_ = const_cast<T*>(static_cast<const T*>(problem_.x)) + offset;
    g_ = const_cast<T*>(static_cast<const T*>(problem_.g)) + offset;
    if (problem_.out != nullptr) out_ = static_cast<T*>(problem_.out) + offset;
  }

  // Brings what was computed at that place to memory.
  void done(int64_t offset, int64_t rows, int64_t n) {
    if (!copied_ || problem_.out == nullptr) return;
    if constexpr (sizeof(T) == sizeof(float)) {
      uint16_t* target = static_cast<uint16_t*>(problem_.out) + offset;
      for (int64_t r = 0; r < rows; ++r) {
        convert_.narrow(out_ + r * pitch_, target + r * stride_, n, problem_.storage);
      }
    }
  }

  const T* x() const { return x_; }
  const T* g() const { return g_; }
  T* out() const { return out_; }
  int64_t stride() const { return copied_ ? pitch_ : stride_; }
  int64_t out_stride() const { return copied_ ? pitch_ : problem_.out == nullptr ? 0 : stride_; }
  bool copied() const { return copied_; }

 private:
  void read(const void* source, T* target, int64_t offset, int64_t rows, int64_t n) {
    if constexpr (sizeof(T) == sizeof(float)) {
      const uint16_t* halves = static_cast<const uint16_t*>(source) + offset;
      for (int64_t r = 0; r < rows; ++r) {
        convert_.widen(halves + r * stride_, target + r * pitch_, n, problem_.storage);
      }
    }
  }

  const Problem& problem_;
  const Converters& convert_;
  int64_t stride_;
  int64_t pitch_;
  bool copied_;
  std::unique_ptr<T[]> copies_;
  T* x_ = nullptr;
  T* g_ = nullptr;
  T* out_ = nullptr;
};

// Calls visit(unit, view, rows, n) for the strips of one task.
template <typename T, typename Visit>
void visit_rows(const Problem& p, const Capability& capability, const RowPlan& plan, int64_t task,
                const Visit& visit) {
  const int64_t segment = task % plan.segments * plan.segment;
  const int64_t unit = task / plan.segments % plan.ranges * plan.range;
  const int64_t outer = task / plan.segments / plan.ranges * plan.chunk;
  const int64_t end = std::min(p.inner, segment + plan.segment);
  const int64_t stride = p.units * p.inner;
  View<T> view(p, capability, stride, plan.merge, std::min(STRIP, p.inner));

  for (int64_t o = outer; o < std::min(p.outer, outer + plan.chunk); o += plan.merge) {
    const int64_t rows = std::min(plan.merge, std::min(p.outer, outer + plan.chunk) - o);
    for (int64_t u = unit; u < std::min(p.units, unit + plan.range); ++u) {
      for (int64_t i = segment; i < end; i += STRIP) {
        const int64_t n = std::min(STRIP, end - i);
        const int64_t offset = o * stride + u * p.inner + i;
        view.at(offset, rows, n);
        visit(u, view, rows, n);
        view.done(offset, rows, n);
      }
    }
  }
}

// The hinges of one unit, side by side.
template <typename T>
class UnitHinges {
 public:
  explicit UnitHinges(const Problem& problem)
      : problem_(problem), values_(uninitialised<T>(2 * problem.hinges)) {}

  void select(int64_t unit) {
    if (unit == unit_) return;
    unit_ = unit;
    for (int64_t s = 0; s < problem_.hinges; ++s) {
      values_[s] = static_cast<const T*>(problem_.a)[s * problem_.units + unit];
      values_[problem_.hinges + s] = static_cast<const T*>(problem_.b)[s * problem_.units + unit];
    }
  }

  const T* a() const { return values_.get(); }
  const T* b() const { return values_.get() + problem_.hinges; }

 private:
  const Problem& problem_;
  std::unique_ptr<T[]> values_;
  int64_t unit_ = -1;
};

// Writes the gradients of units from .. from + n of hinge s, given their two sums.
template <typename T>
void write_gradients(const Problem& p, const Primitives<T>& kernels, int64_t s, int64_t from,
                     int64_t n, const double* sum_a, const double* sum_b) {
  const int64_t index = s * p.units + from;
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
    const int64_t from = task * range, n = std::min(range, p.units - from);
    for (int64_t k = 0; k < 2 * p.hinges; ++k) {
      double* total = partial + k * p.units + from;
      for (int64_t q = 1; q < parts; ++q) {
        for (int64_t u = 0; u < n; ++u) total[u] += total[q * size + u];
      }
    }
    for (int64_t s = 0; s < p.hinges; ++s) {
      const double* sum_a = partial + s * p.units + from;
      write_gradients<T>(p, kernels, s, from, n, sum_a, sum_a + p.hinges * p.units);
    }
  });
}

template <typename T>
void forward_by_rows(const Problem& p, const Capability& capability) {
  const RowPlan plan(p.outer, p.units, p.inner);
  const auto kernel = primitives<T>(capability).forward_rows;
  parallel(plan.tasks(), [&](int64_t task) {
    UnitHinges<T> hinges(p);
    visit_rows<T>(p, capability, plan, task, [&](int64_t u, View<T>& view, int64_t rows, int64_t n) {
      hinges.select(u);
      kernel(view.x(), view.out(), rows, view.stride(), view.out_stride(), n, hinges.a(), hinges.b(),
             p.hinges);
    });
  });
}

template <typename T>
void backward_by_rows(const Problem& p, const Capability& capability) {
  const RowPlan plan(p.outer, p.units, p.inner);
  const Primitives<T>& kernels = primitives<T>(capability);
  const bool sums = p.grad_a != nullptr || p.grad_b != nullptr;
  const int64_t parts = plan.chunks * plan.segments;
  std::vector<double> partial(sums ? parts * p.units * 2 * p.hinges : 0);
  parallel(plan.tasks(), [&](int64_t task) {
    UnitHinges<T> hinges(p);
    const auto strip = uninitialised<double>(2 * p.hinges);
    const int64_t part = task / plan.segments / plan.ranges * plan.segments + task % plan.segments;
    visit_rows<T>(p, capability, plan, task, [&](int64_t u, View<T>& view, int64_t rows, int64_t n) {
      hinges.select(u);
      if (sums) {
        std::fill_n(strip.get(), 2 * p.hinges, 0.0);
        kernels.backward_rows(view.x(), view.g(), view.out(), rows, view.stride(), view.out_stride(),
                              n, hinges.a(), hinges.b(), p.hinges, strip.get());
        double* total = partial.data() + part * 2 * p.hinges * p.units + u;
        for (int64_t k = 0; k < 2 * p.hinges; ++k) total[k * p.units] += strip[k];
      } else {
        kernels.backward_rows_input(view.x(), view.g(), view.out(), rows, view.stride(),
                                    view.out_stride(), n, hinges.a(), hinges.b(), p.hinges);
      }
    });
  });
  if (sums) add_parts<T>(p, kernels, partial.data(), parts);
}

// The hinges of a block of columns, and the sums of its columns.
template <typename T>
class ColumnHinges {
 public:
  ColumnHinges(const Problem& problem, const ColumnPlan& plan, int64_t first, int64_t width, bool sums)
      : problem_(problem),
        first_unit_(first / problem.inner),
        units_(std::min(width, problem.units * problem.inner) / problem.inner),
        width_(width),
        pitch_(round_up(plan.block, 16)),
        size_(problem.hinges * pitch_),
        values_(uninitialised<T>((sums ? 4 : 2) * size_)) {
    for (int64_t s = 0; s < problem.hinges; ++s) {
      expand(static_cast<const T*>(problem.a) + s * problem.units, values_.get() + s * pitch_);
      expand(static_cast<const T*>(problem.b) + s * problem.units, b_() + s * pitch_);
    }
    if (!sums) return;
    std::fill_n(sum_a(), 2 * size_, T(0));
    totals_ = uninitialised<double>(2 * size_);
    std::fill_n(totals_.get(), 2 * size_, 0.0);
  }

  const T* a() const { return values_.get(); }
  const T* b() const { return values_.get() + size_; }
  T* sum_a() { return values_.get() + 2 * size_; }
  T* sum_b() { return values_.get() + 3 * size_; }
  int64_t pitch() const { return pitch_; }

  void flush(const Primitives<T>& kernels) { kernels.flush(sum_a(), totals_.get(), 2 * size_); }

  // Adds up the columns of each unit: sum k of the block's unit u is then sums(k)[u].
  void collect() {
    const int64_t period = units_ * problem_.inner;
    for (int64_t k = 0; k < 2 * problem_.hinges; ++k) {
      double* totals = totals_.get() + k * pitch_;
      for (int64_t from = period; from < width_; from += period) {
        for (int64_t c = 0; c < period; ++c) totals[c] += totals[from + c];
      }
      if (problem_.inner == 1) continue;
      for (int64_t u = 0; u < units_; ++u) {
        double sum = 0;
        for (int64_t i = 0; i < problem_.inner; ++i) sum += totals[u * problem_.inner + i];
        totals[u] = sum;
      }
    }
  }

  const double* sums(int64_t k) const { return totals_.get() + k * pitch_; }
  int64_t first_unit() const { return first_unit_; }
  int64_t units() const { return units_; }

 private:
  T* b_() { return values_.get() + size_; }

  void expand(const T* source, T* target) const {
    for (int64_t c = 0; c < width_; c += units_ * problem_.inner) {
      for (int64_t u = 0; u < units_; ++u) {
        std::fill_n(target + c + u * problem_.inner, problem_.inner, source[first_unit_ + u]);
      }
    }
    std::fill(target + width_, target + pitch_, T(0));
  }

  const Problem& problem_;
  int64_t first_unit_, units_, width_, pitch_, size_;
  std::unique_ptr<T[]> values_;
  std::unique_ptr<double[]> totals_;
};

// Rows of which a sum in the type of the arithmetic takes one element each before it is flushed.
constexpr int64_t FLUSH_ROWS = 128;

// Calls visit(view, rows, n) for the pieces of one task and flush() after every FLUSH_ROWS rows.
template <typename T, typename Visit, typename Flush>
void visit_columns(const Problem& p, const Capability& capability, const ColumnPlan& plan,
                   int64_t task, const Visit& visit, const Flush& flush) {
  const int64_t column = task % plan.blocks * plan.block;
  const int64_t width = std::min(plan.block, plan.columns - column);
  const int64_t row = task / plan.blocks * plan.chunk;
  const int64_t end = std::min(plan.rows, row + plan.chunk);
  const bool copied = p.storage == Storage::bfloat16 || p.storage == Storage::float16;
  const int64_t step = copied ? 4 : FLUSH_ROWS;
  View<T> view(p, capability, plan.columns, 4, width);

  for (int64_t r = row; r < end; r += step) {
    const int64_t rows = std::min(step, end - r);
    const int64_t offset = r * plan.columns + column;
    view.at(offset, rows, width);
    visit(view, rows, width);
    view.done(offset, rows, width);
    if ((r + rows - row) % FLUSH_ROWS == 0 || r + rows == end) flush();
  }
  if (end == plan.rows && plan.ragged > 0) {
    view.at(plan.rows * plan.columns, 1, plan.ragged);
    visit(view, 1, plan.ragged);
    view.done(plan.rows * plan.columns, 1, plan.ragged);
    flush();
  }
}

template <typename T>
void forward_by_columns(const Problem& p, const Capability& capability) {
  const ColumnPlan plan(p.outer, p.units, p.inner, p.hinges, sizeof(T));
  const auto kernel = primitives<T>(capability).forward_columns;
  parallel(plan.tasks(), [&](int64_t task) {
    const int64_t column = task % plan.blocks * plan.block;
    ColumnHinges<T> hinges(p, plan, column, std::min(plan.block, plan.columns - column), false);
    visit_columns<T>(
        p, capability, plan, task,
        [&](View<T>& view, int64_t rows, int64_t n) {
          kernel(view.x(), view.out(), rows, view.stride(), view.out_stride(), n, hinges.a(),
                 hinges.b(), p.hinges, hinges.pitch());
        },
        [] {});
  });
}

template <typename T>
void backward_by_columns(const Problem& p, const Capability& capability) {
  const ColumnPlan plan(p.outer, p.units, p.inner, p.hinges, sizeof(T));
  const Primitives<T>& kernels = primitives<T>(capability);
  const bool sums = p.grad_a != nullptr || p.grad_b != nullptr;
  const int64_t size = 2 * p.hinges * p.units;
  const auto partial = uninitialised<double>(sums && plan.chunks > 1 ? plan.chunks * size : 0);
  parallel(plan.tasks(), [&](int64_t task) {
    const int64_t column = task % plan.blocks * plan.block;
    ColumnHinges<T> hinges(p, plan, column, std::min(plan.block, plan.columns - column), sums);
    const auto visit = [&](View<T>& view, int64_t rows, int64_t n) {
      if (sums) {
        kernels.backward_columns(view.x(), view.g(), view.out(), rows, view.stride(),
                                 view.out_stride(), n, hinges.a(), hinges.b(), hinges.sum_a(),
                                 hinges.sum_b(), p.hinges, hinges.pitch());
      } else {
        kernels.backward_columns_input(view.x(), view.g(), view.out(), rows, view.stride(),
                                       view.out_stride(), n, hinges.a(), hinges.b(), p.hinges,
                                       hinges.pitch());
      }
    };
    visit_columns<T>(p, capability, plan, task, visit, [&] {
      if (sums) hinges.flush(kernels);
    });
    if (!sums) return;
    hinges.collect();
    const int64_t first = hinges.first_unit(), n = hinges.units();
    if (plan.chunks == 1) {
      for (int64_t s = 0; s < p.hinges; ++s) {
        write_gradients<T>(p, kernels, s, first, n, hinges.sums(s), hinges.sums(p.hinges + s));
      }
      return;
    }
    double* part = partial.get() + task / plan.blocks * size + first;
    for (int64_t k = 0; k < 2 * p.hinges; ++k) std::copy_n(hinges.sums(k), n, part + k * p.units);
  });
  if (sums && plan.chunks > 1) add_parts<T>(p, kernels, partial.get(), plan.chunks);
}

bool by_rows(int64_t units, int64_t inner) {
  return units == 1 || inner >= SHORTEST_ROW;
}

bool by_rows(const Problem& problem) {
  return by_rows(problem.units, problem.inner);
}

}  // namespace

void forward(const Problem& problem, const Capability& capability) {
  if (problem.storage == Storage::float64) {
    by_rows(problem) ? forward_by_rows<double>(problem, capability)
                     : forward_by_columns<double>(problem, capability);
  } else {
    by_rows(problem) ? forward_by_rows<float>(problem, capability)
                     : forward_by_columns<float>(problem, capability);
  }
}

void backward(const Problem& problem, const Capability& capability) {
  if (problem.storage == Storage::float64) {
    by_rows(problem) ? backward_by_rows<double>(problem, capability)
                     : backward_by_columns<double>(problem, capability);
  } else {
    by_rows(problem) ? backward_by_rows<float>(problem, capability)
                     : backward_by_columns<float>(problem, capability);
  }
}

int64_t tasks(int64_t outer, int64_t units, int64_t inner, int64_t hinges) {
  return by_rows(units, inner) ? RowPlan(outer, units, inner).tasks()
                               : ColumnPlan(outer, units, inner, hinges, sizeof(float)).tasks();
}

}  // namespace torchapl
