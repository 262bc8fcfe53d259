// Access to storage in the type of the arithmetic.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels.h"
#include "plan.h"

namespace torchapl {

template <typename T>
std::unique_ptr<T[]> uninitialised(int64_t size) {
  return std::unique_ptr<T[]>(new T[size]);
}

inline bool has_16_bits(Storage storage) {
  return storage == Storage::bfloat16 || storage == Storage::float16;
}

// Up to `rows` times `width` elements as T: in place, or through a copy where storage has 16 bits.
template <typename T>
class View {
 public:
  View(const Problem& problem, const Capability& capability, int64_t stride, int64_t rows,
       int64_t width, int64_t ahead)
      : problem_(problem),
        convert_(capability.convert),
        copied_(has_16_bits(problem.storage)),
        stride_(stride),
        ahead_(ahead),
        pitch_(round_up(width, LANES)) {
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

  // Makes x, g and out refer to the given place.
  void open(int64_t offset, int64_t rows, int64_t n) {
    if (copied_) {
      read(problem_.x, x_, offset, rows, n);
      if (problem_.g != nullptr) read(problem_.g, g_, offset, rows, n);
      return;
    }
    x_ = const_cast<T*>(static_cast<const T*>(problem_.x)) + offset;
    if (problem_.g != nullptr) g_ = const_cast<T*>(static_cast<const T*>(problem_.g)) + offset;
    if (problem_.out != nullptr) out_ = static_cast<T*>(problem_.out) + offset;
  }

  // Brings what was computed at that place to memory.
  void close(int64_t offset, int64_t rows, int64_t n) {
    if constexpr (sizeof(T) == sizeof(float)) {
      if (!copied_ || problem_.out == nullptr) return;
      uint16_t* target = static_cast<uint16_t*>(problem_.out) + offset;
      for (int64_t r = 0; r < rows; ++r) {
        convert_.narrow(out_ + r * pitch_, target + r * stride_, n, ahead_, problem_.storage);
      }
    }
  }

  const T* x() const { return x_; }
  const T* g() const { return g_; }
  T* out() const { return out_; }
  // From an element to the one to be fetched meanwhile; copies are in the cache.
  int64_t ahead() const { return copied_ ? 0 : ahead_; }
  int64_t stride() const { return copied_ ? pitch_ : stride_; }
  int64_t out_stride() const { return copied_ ? pitch_ : problem_.out == nullptr ? 0 : stride_; }

 private:
  void read(const void* source, T* target, int64_t offset, int64_t rows, int64_t n) {
    if constexpr (sizeof(T) == sizeof(float)) {
      const uint16_t* halves = static_cast<const uint16_t*>(source) + offset;
      for (int64_t r = 0; r < rows; ++r) {
        convert_.widen(halves + r * stride_, target + r * pitch_, n, ahead_, problem_.storage);
      }
    }
  }

  const Problem& problem_;
  const Converters& convert_;
  const bool copied_;
  const int64_t stride_;
  const int64_t ahead_;
  const int64_t pitch_;
  std::unique_ptr<T[]> copies_;
  T* x_ = nullptr;
  T* g_ = nullptr;
  T* out_ = nullptr;
};

}  // namespace torchapl
