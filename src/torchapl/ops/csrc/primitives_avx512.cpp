// AVX-512 (F, BW, DQ, VL). Only this file's functions use them; they run where the processor has them.
#include "primitives.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif

#define INLINE inline __attribute__((always_inline))
#define TORCHAPL_BYTES 64

namespace torchapl {
namespace {

#include "vectors.inc"

// The second operand is returned where one is NaN. (From a comparison GCC makes two instructions.)
INLINE V<float> relu(V<float> v) {
  return _mm512_max_ps(V<float>{}, v);
}

INLINE V<double> relu(V<double> v) {
  return _mm512_max_pd(V<double>{}, v);
}

INLINE __mmask16 first(int64_t n) {
  return static_cast<__mmask16>((1u << n) - 1);
}

INLINE V<float> load_some(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(first(n), p);
}

INLINE V<double> load_some(const double* p, int64_t n) {
  return _mm512_maskz_loadu_pd(static_cast<__mmask8>(first(n)), p);
}

INLINE void store_some(float* p, V<float> v, int64_t n) {
  _mm512_mask_storeu_ps(p, first(n), v);
}

INLINE void store_some(double* p, V<double> v, int64_t n) {
  _mm512_mask_storeu_pd(p, static_cast<__mmask8>(first(n)), v);
}

INLINE V<float> widen_float16(Halves halves) {
  return _mm512_cvtph_ps(reinterpret_cast<__m256i>(halves));
}

INLINE Halves narrow_float16(V<float> v) {
  return reinterpret_cast<Halves>(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

#include "convert.inc"
#include "kernel.inc"

}  // namespace

const Capability avx512 = {"AVX-512", primitives<float>(), primitives<double>(),
                           primitives<BFloat16>(), primitives<Float16>()};

}  // namespace torchapl

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
