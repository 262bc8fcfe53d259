// AVX-512 (F, BW, DQ, VL).
#include "primitives.h"

#ifdef TORCHAPL_X86

#include <immintrin.h>

#define TORCHAPL_CAPABILITY avx512
#define TORCHAPL_NAME "AVX-512"
#define TORCHAPL_TARGET "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c"
#define TORCHAPL_BYTES 64

#include "begin.inc"

// The second operand is returned where one is NaN. (From a comparison GCC makes two instructions.)
INLINE V<float> relu(V<float> v) { return _mm512_max_ps(V<float>{}, v); }
INLINE V<double> relu(V<double> v) { return _mm512_max_pd(V<double>{}, v); }

INLINE __mmask16 first(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }
INLINE __mmask8 first64(int64_t n) { return static_cast<__mmask8>((1u << n) - 1); }

INLINE V<float> load_lanes(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(first(n), p); }
INLINE V<double> load_lanes(const double* p, int64_t n) {
  return _mm512_maskz_loadu_pd(first64(n), p);
}

INLINE void store_lanes(float* p, V<float> v, int64_t n) { _mm512_mask_storeu_ps(p, first(n), v); }
INLINE void store_lanes(double* p, V<double> v, int64_t n) {
  _mm512_mask_storeu_pd(p, first64(n), v);
}

template <>
INLINE V<float> widen<Float16>(Halves halves) {
  return _mm512_cvtph_ps(reinterpret_cast<__m256i>(halves));
}

template <>
INLINE Halves narrow<Float16>(V<float> v) {
  return reinterpret_cast<Halves>(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

#include "end.inc"

#endif
