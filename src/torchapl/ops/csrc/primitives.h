// The innermost loops, compiled once per instruction set; everything around them is in kernels.cpp.
#pragma once

#include <cstdint>

namespace torchapl {

enum class Storage { float32, float64, bfloat16, float16 };

// T is the type of the arithmetic, float or double. No pointer needs to be aligned.
template <typename T>
struct Primitives {
  // Row r of the arguments starts at r * stride, row r of the result at r * out (0: all rows overwrite
  // one, for a result that nobody wants).
  //
  // Rows: all elements belong to one unit, whose hinges are a[s], b[s].
  // backward_rows adds the sums over g*gate (sums[s]) and over g (sums[hinges + s]) of active elements.
  void (*forward_rows)(const T* x, T* y, int64_t rows, int64_t stride, int64_t out, int64_t n, const T* a,
                       const T* b, int64_t hinges);
  void (*backward_rows)(const T* x, const T* g, T* dx, int64_t rows, int64_t stride, int64_t out, int64_t n,
                        const T* a, const T* b, int64_t hinges, double* sums);
  void (*backward_rows_input)(const T* x, const T* g, T* dx, int64_t rows, int64_t stride, int64_t out, int64_t n,
                              const T* a, const T* b, int64_t hinges);
  // Columns: column c has the hinges a[s * pitch + c], b[...], and sums of its own in sum_a, sum_b.
  // These five have room for whole vectors: pitch is a multiple of 16.
  void (*forward_columns)(const T* x, T* y, int64_t rows, int64_t stride, int64_t out, int64_t n, const T* a,
                          const T* b, int64_t hinges, int64_t pitch);
  void (*backward_columns)(const T* x, const T* g, T* dx, int64_t rows, int64_t stride, int64_t out, int64_t n,
                           const T* a, const T* b, T* sum_a, T* sum_b, int64_t hinges,
                           int64_t pitch);
  void (*backward_columns_input)(const T* x, const T* g, T* dx, int64_t rows, int64_t stride, int64_t out,
                                 int64_t n, const T* a, const T* b, int64_t hinges, int64_t pitch);
  // Moves n sums to those in double: totals += sums, sums = 0.
  void (*flush)(T* sums, double* totals, int64_t n);
  // target = totals * scale, or totals where scale is a null pointer.
  void (*finish)(const double* totals, const T* scale, T* target, int64_t n);
};

// Conversion of n elements between 16-bit storage and float.
struct Converters {
  void (*widen)(const void* source, float* target, int64_t n, Storage storage);
  void (*narrow)(const float* source, void* target, int64_t n, Storage storage);
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
