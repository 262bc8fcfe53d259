// AVX2 with FMA and F16C. Only this file's functions use them; they run where the processor has them.
#include "primitives.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

#define INLINE inline __attribute__((always_inline))
#define TORCHAPL_BYTES 32

namespace torchapl {
namespace {

#include "vectors.inc"

// The second operand is returned where one is NaN. (From a comparison GCC makes two instructions.)
INLINE V<float> relu(V<float> v) {
  return _mm256_max_ps(V<float>{}, v);
}

INLINE V<double> relu(V<double> v) {
  return _mm256_max_pd(V<double>{}, v);
}

// Eight ones, then eight zeros: read from 8 - n on, it selects the first n lanes.
alignas(64) const int32_t MASKS[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
alignas(64) const int64_t MASKS64[8] = {-1, -1, -1, -1, 0, 0, 0, 0};

INLINE __m256i first(int64_t n) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(MASKS + 8 - n));
}

INLINE __m256i first64(int64_t n) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(MASKS64 + 4 - n));
}

INLINE V<float> load_some(const float* p, int64_t n) {
  return _mm256_maskload_ps(p, first(n));
}

INLINE V<double> load_some(const double* p, int64_t n) {
  return _mm256_maskload_pd(p, first64(n));
}

INLINE void store_some(float* p, V<float> v, int64_t n) {
  _mm256_maskstore_ps(p, first(n), v);
}

INLINE void store_some(double* p, V<double> v, int64_t n) {
  _mm256_maskstore_pd(p, first64(n), v);
}

INLINE V<float> widen_float16(Halves halves) {
  return _mm256_cvtph_ps(reinterpret_cast<__m128i>(halves));
}

INLINE Halves narrow_float16(V<float> v) {
  return reinterpret_cast<Halves>(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

#include "convert.inc"
#include "kernel.inc"

}  // namespace

const Capability avx2 = {"AVX2", primitives<float>(), primitives<double>(),
                           primitives<BFloat16>(), primitives<Float16>()};

}  // namespace torchapl

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
