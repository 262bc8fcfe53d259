// The innermost loops, compiled once per instruction set; everything around them is in kernels.cpp.
#pragma once

#include <cstdint>

namespace torchapl {

enum class Storage { float32, float64, bfloat16, float16 };

// A matrix of elements. Column c has the hinges a[s * pitch + c], b[s * pitch + c]; its sums in sum_a and
// sum_b have the same layout. These four have room for whole vectors: pitch is a multiple of LANES.
// T is the type of the arithmetic, float or double. No pointer needs to be aligned.
constexpr int64_t LANES = 16;

template <typename T>
struct Forward {
  const T* x;
  T* y;
  int64_t rows;
  int64_t n;           // columns
  int64_t stride;      // from row to row of x
  int64_t out_stride;  // and of y
  int64_t ahead;       // from an element to the one to be fetched meanwhile; may lie outside
  const T* a;
  const T* b;
  int64_t hinges;
  int64_t pitch;
};

template <typename T>
struct Backward {
  const T* x;
  const T* g;
  T* dx;
  int64_t rows;
  int64_t n;
  int64_t stride;      // of x and g
  int64_t out_stride;  // of dx; 0 lets all rows overwrite one, for a dx that nobody wants
  int64_t ahead;
  const T* a;
  const T* b;
  T* sum_a;  // sums over g * gate and over g of the active elements; null pointers if unwanted
  T* sum_b;
  int64_t hinges;
  int64_t pitch;
};

template <typename T>
struct Primitives {
  void (*forward)(const Forward<T>& arguments);
  void (*backward)(const Backward<T>& arguments);
  // Moves n sums to those in double: totals += sums (the first time, totals = sums), sums = 0.
  void (*flush)(T* sums, double* totals, int64_t n, bool first);
  // Moves groups of LANES sums each to one in double: totals[k] = the sum of group k, sums = 0.
  void (*collapse)(T* sums, double* totals, int64_t groups);
  // target = totals * scale, or totals where scale is a null pointer.
  void (*finish)(const double* totals, const T* scale, T* target, int64_t n);
};

// Conversion of n elements between 16-bit storage and float. The floats have room for whole vectors.
struct Converters {
  void (*widen)(const void* source, float* target, int64_t n, int64_t ahead, Storage storage);
  void (*narrow)(const float* source, void* target, int64_t n, int64_t ahead, Storage storage);
};

struct Capability {
  const char* name;
  Primitives<float> single;
  Primitives<double> twice;
  Converters convert;
};

extern const Capability baseline;
#if defined(__x86_64__) && defined(__GNUC__)
extern const Capability avx2;
extern const Capability avx512;
#endif

}  // namespace torchapl
