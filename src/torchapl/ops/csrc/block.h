// The hinges of a block of columns, the sums over these columns, and the call of the innermost
// loops.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "cache.h"
#include "kernels.h"
#include "plan.h"

namespace torchapl {

// Memory for whole vectors: one that lies across two cache lines costs two accesses, and with
// hinges and sums that do, five hinges per position took half as long again.
constexpr std::align_val_t LINE{64};

struct Release {
  void operator()(void* memory) const { ::operator delete(memory, LINE); }
};

template <typename T>
using Buffer = std::unique_ptr<T[], Release>;

// Aligned memory takes longer to get than the units of a few elements.
template <typename T>
Buffer<T> uninitialised(int64_t size) {
  if (size == 0) return nullptr;
  return Buffer<T>(static_cast<T*>(::operator new(size * sizeof(T), LINE)));
}

template <typename E>
class Block {
 public:
  using T = Arithmetic<E>;

  // `finite`: whether all parameters are known to be; `refers` as in Backward: whether sums are
  // made with references, if the parameters of the block are finite.
  Block(const Problem& problem, const Primitives<E>& kernels, bool finite, bool refers)
      : problem_(problem),
        kernels_(kernels),
        sums_(problem.grad_a != nullptr || problem.grad_b != nullptr),
        past_(kernels.streams && problem.out != nullptr &&
              goes_past<E>(problem.outer * problem.units * problem.inner)),
        finite_(finite),
        refers_(refers) {}

  ~Block() {
    if (past_) settle();
  }

  // Each group of columns has the hinges and sums of one of the units from `first` on. What is run
  // then belongs to the unit in focus.
  void select_units(int64_t first, int64_t units) {
    allocate(units * LANES, false);
    step_ = std::exchange(group_, 0);
    T* reference = refers() ? sum_a_ + size_ : nullptr;
    reference_ = reference;
    for (int64_t u = 0; u < units; ++u) {
      kernels_.spread(static_cast<const T*>(problem_.a) + first + u,
                      static_cast<const T*>(problem_.b) + first + u, problem_.hinges,
                      problem_.units, a_ + u * step_, reference);
      if (reference != nullptr) reference += LANES;
    }
  }

  void focus(int64_t unit) { focus_ = unit; }

  // `inner` columns belong to the unit `first`, as many to the next, up to `units` of them, then
  // again from the first.
  void select(int64_t first, int64_t units, int64_t width) {
    allocate(width, true);
    first_ = first;
    units_ = units;
    width_ = width;
    // Where every column is a unit of its own, the row is there already.
    const auto row = uninitialised<T>(units == width ? 0 : width);
    for (int64_t s = 0; s < problem_.hinges; ++s) {
      const int64_t index = s * problem_.units + first;
      expand(static_cast<const T*>(problem_.a) + index, row.get(), a_ + s * pitch_);
      expand(static_cast<const T*>(problem_.b) + index, row.get(), b_ + s * pitch_);
    }
    // Whether they are finite is seen here, where they are at hand: with curves per position, a
    // look at all of them before would be one more way through memory.
    finite_ = finite_ || kernels_.all_finite(a_, size_);
    refer();
  }

  // Column c belongs to unit first + c. No copy: the hinges are read where they are, and the
  // kernel writes the gradients.
  void select_in_place(int64_t first, int64_t width) {
    first_ = first;
    width_ = width;
    pitch_ = problem_.units;
    group_ = LANES;
    a_ = const_cast<T*>(static_cast<const T*>(problem_.a)) + first;
    b_ = const_cast<T*>(static_cast<const T*>(problem_.b)) + first;
    if (!sums_) return;
    sum_a_ = static_cast<T*>(problem_.grad_a) + first;
    sum_b_ = static_cast<T*>(problem_.grad_b) + first;
    complete_ = true;
  }

  // Writes the gradients if each is the sum of one column that has not left the type of the
  // arithmetic; tells whether that is so.
  bool write_gradients() const {
    if (flushed_ || units_ != width_) return false;
    const auto at = [&](void* gradients) {
      return gradients == nullptr ? nullptr : static_cast<T*>(gradients) + first_;
    };
    kernels_.finish_groups(sum_a_, a_, reference_, at(problem_.grad_a), at(problem_.grad_b), width_,
                           problem_.hinges, problem_.units);
    return true;
  }

  // A matrix at `offset` of the data; rows follow each other at `stride`.
  void forward(int64_t offset, int64_t rows, int64_t n, int64_t stride, int64_t ahead) const {
    Forward<E> f;
    f.x = static_cast<const E*>(problem_.x) + offset;
    f.y = static_cast<E*>(problem_.out) + offset;
    f.rows = rows;
    f.n = n;
    f.stride = stride;
    f.ahead = ahead;
    f.a = a_ + focus_ * step_;
    f.b = b_ + focus_ * step_;
    f.finite = finite_;
    f.past = past_ && in_whole_vectors(f.y, stride);
    f.hinges = problem_.hinges;
    f.pitch = pitch_;
    f.group = group_;
    kernels_.forward(f);
  }

  void backward(int64_t offset, int64_t rows, int64_t n, int64_t stride, int64_t ahead) {
    // A dx that nobody wants is written to one and the same place.
    const bool wanted = problem_.out != nullptr;
    Backward<E> f;
    f.x = static_cast<const E*>(problem_.x) + offset;
    f.g = static_cast<const E*>(problem_.g) + offset;
    f.dx = wanted ? static_cast<E*>(problem_.out) + offset : unwanted(n);
    f.rows = rows;
    f.n = n;
    f.stride = stride;
    f.out_stride = wanted ? stride : 0;
    f.ahead = ahead;
    f.a = a_ + focus_ * step_;
    f.b = b_ + focus_ * step_;
    f.reference = reference_ == nullptr ? nullptr : reference_ + focus_ * LANES;
    f.sum_a = sum_a_ == nullptr ? nullptr : sum_a_ + focus_ * step_;
    f.sum_b = sum_b_ == nullptr ? nullptr : sum_b_ + focus_ * step_;
    f.complete = complete_;
    f.past = past_ && in_whole_vectors(f.dx, stride);
    f.hinges = problem_.hinges;
    f.pitch = pitch_;
    f.group = group_;
    kernels_.backward(f);
  }

  // Sums in the type of the arithmetic stay exact enough over a limited number of elements.
  void flush() {
    if (sums_) kernels_.flush(sum_a_, totals_, size_, !flushed_);
    flushed_ = true;
  }

  // The sums of the unit in focus so far: those of a and b of the first hinge, then of the next.
  void collapse(double* sums) {
    kernels_.collapse(sum_a_ + focus_ * step_, sums, 2 * problem_.hinges);
  }

  // The flushed sums of each unit, after select(): number k of unit u is at totals()[k *
  // pitch() + u].
  void collect() {
    const int64_t period = units_ * problem_.inner;
    collected_ = uninitialised<double>(size_);
    const double* grouped = std::exchange(totals_, collected_.get());
    for (int64_t k = 0; k < 2 * problem_.hinges; ++k) {
      double* total = totals_ + k * padded_;
      for (int64_t c = 0; c < padded_; c += LANES) {
        std::memcpy(total + c, grouped + c / LANES * group_ + k * LANES, LANES * sizeof(double));
      }
      // In pairs, then pairs of pairs: where rows are equal, as in an expanded map, the roundings
      // of one sum after the other would all go the same way.
      for (int64_t step = period; step < width_; step *= 2) {
        for (int64_t to = 0; to + step < width_; to += 2 * step) {
          for (int64_t c = to; c < to + period; ++c) total[c] += total[c + step];
        }
      }
      if (problem_.inner == 1) continue;
      for (int64_t u = 0; u < units_; ++u) {
        total[u] = sum_of(total + u * problem_.inner, problem_.inner);
      }
    }
  }

  // Copies the flushed sums to rows at `pitch`, two for every hinge, if every column is a unit;
  // tells whether that is so. What is collected otherwise goes through memory twice.
  bool copy_totals(double* rows, int64_t pitch) const {
    if (units_ != width_) return false;
    int64_t c = 0;
    const double* from = totals_;
    for (; c + LANES <= width_; c += LANES, from += group_) {
      for (int64_t k = 0; k < 2 * problem_.hinges; ++k) {
        std::memcpy(rows + k * pitch + c, from + k * LANES, LANES * sizeof(double));
      }
    }
    for (int64_t k = 0; k < 2 * problem_.hinges; ++k) {
      std::copy_n(from + k * LANES, width_ - c, rows + k * pitch + c);
    }
    return true;
  }

  bool refers() const { return refers_ && finite_; }
  const double* totals() const { return totals_; }
  int64_t pitch() const { return padded_; }
  int64_t first() const { return first_; }
  int64_t units() const { return units_; }

 private:
  // Makes room for the hinges and sums of `width` columns; `flushed`: also for what is flushed.
  // What belongs to a group of columns lies together: apart, at a distance of a power of two, its
  // lines would compete for the same places of the first-level cache.
  void allocate(int64_t width, bool flushed) {
    padded_ = round_up(width, LANES);
    pitch_ = GROUPED_PITCH;
    group_ = problem_.hinges * pitch_;
    size_ = padded_ / LANES * group_;
    const int64_t values = sums_ ? 2 * size_ + padded_ : size_,
                  totals = sums_ && flushed ? size_ : 0;
    const int64_t bytes = values * sizeof(T) + totals * sizeof(double);
    if (bytes > NEAR) memory_ = uninitialised<std::byte>(bytes);
    std::byte* memory = bytes > NEAR ? memory_.get() : near_;
    a_ = reinterpret_cast<T*>(memory);
    b_ = a_ + LANES;
    if (!sums_) return;
    sum_a_ = a_ + size_;
    sum_b_ = sum_a_ + LANES;
    std::fill_n(sum_a_, size_, T(0));
    totals_ = reinterpret_cast<double*>(sum_a_ + size_ + padded_);
  }

  void refer() {
    reference_ = refers() ? sum_a_ + size_ : nullptr;
    if (reference_ == nullptr) return;
    kernels_.refer(b_, problem_.hinges, pitch_, group_, reference_, padded_);
  }

  // Several sums side by side do not wait for each other: one alone took as long as all the rest.
  static double sum_of(const double* values, int64_t n) {
    double sums[8] = {};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
      for (int64_t j = 0; j < 8; ++j) sums[j] += values[i + j];
    }
    for (; i < n; ++i) sums[0] += values[i];
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
           ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  }

  // The first matrix of a block is the widest.
  E* unwanted(int64_t n) {
    if (unwanted_ == nullptr) unwanted_ = uninitialised<E>(n);
    return unwanted_.get();
  }

  // The numbers of a hinge, one for every column, first in a row and then in their groups.
  void expand(const T* source, T* row, T* target) const {
    const int64_t inner = problem_.inner;
    for (int64_t c = 0; c < width_ && units_ != width_; c += units_ * inner) {
      if (inner == 1) {
        std::copy_n(source, units_, row + c);
      } else {
        for (int64_t u = 0; u < units_; ++u) std::fill_n(row + c + u * inner, inner, source[u]);
      }
    }
    const T* from = units_ == width_ ? source : row;
    int64_t c = 0;
    for (; c + LANES <= width_; c += LANES) {
      // Of a length that the compiler knows; std::copy_n calls a function each time.
      std::memcpy(target + c / LANES * group_, from + c, LANES * sizeof(T));
    }
    if (c == width_) return;
    target += c / LANES * group_;
    std::fill(std::copy(from + c, from + width_, target), target + LANES, T(0));
  }

  const Problem& problem_;
  const Primitives<E>& kernels_;
  const bool sums_, past_;
  bool finite_;
  const bool refers_;
  // Room for the hinges and sums of one group of columns with S = 8.
  static constexpr int64_t NEAR = 4096 + 64;
  alignas(64) std::byte near_[NEAR];
  Buffer<std::byte> memory_;
  Buffer<double> collected_;
  Buffer<E> unwanted_;
  // See Forward and Backward for their layout.
  T *a_ = nullptr, *b_ = nullptr, *sum_a_ = nullptr, *sum_b_ = nullptr, *reference_ = nullptr;
  int64_t padded_ = 0, pitch_ = 0, group_ = 0, size_ = 0;
  int64_t step_ = 0, focus_ = 0;  // from unit to unit; which is run
  int64_t first_ = 0, units_ = 0, width_ = 0;
  double* totals_ = nullptr;
  bool flushed_ = false, complete_ = false;
};

}  // namespace torchapl
