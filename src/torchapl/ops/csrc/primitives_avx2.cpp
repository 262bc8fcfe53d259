// AVX2 with FMA and F16C.
#include "primitives.h"

#ifdef TORCHAPL_X86

#include <immintrin.h>

#define TORCHAPL_CAPABILITY avx2
#define TORCHAPL_NAME "AVX2"
#define TORCHAPL_TARGET "avx2,fma,f16c"
#define TORCHAPL_BYTES 32

#include "begin.inc"
#include "unmasked.inc"

// The second operand is returned where one is NaN. (From a comparison GCC makes two instructions.)
INLINE V<float> relu(V<float> v) { return _mm256_max_ps(V<float>{}, v); }
INLINE V<double> relu(V<double> v) { return _mm256_max_pd(V<double>{}, v); }

// As an integer a negative number is negative too. Maxima of integers may run beside the additions
// and the products, those of floats take the place of one.
INLINE V<float> relu_of_number(V<float> v) {
  return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(v), __m256i{}));
}
INLINE V<double> relu_of_number(V<double> v) { return relu(v); }

// Eight ones, then eight zeros: read from 8 - n on, it selects the first n lanes.
alignas(64) const int32_t MASKS[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
alignas(64) const int64_t MASKS64[8] = {-1, -1, -1, -1, 0, 0, 0, 0};

INLINE __m256i first(int64_t n) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(MASKS + 8 - n));
}

INLINE __m256i first64(int64_t n) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(MASKS64 + 4 - n));
}

INLINE V<float> load_lanes(const float* p, int64_t n) { return _mm256_maskload_ps(p, first(n)); }
INLINE V<double> load_lanes(const double* p, int64_t n) {
  return _mm256_maskload_pd(p, first64(n));
}

INLINE void store_lanes(float* p, V<float> v, int64_t n) { _mm256_maskstore_ps(p, first(n), v); }
INLINE void store_lanes(double* p, V<double> v, int64_t n) {
  _mm256_maskstore_pd(p, first64(n), v);
}

INLINE void stream(void* p, V<float> v) { _mm256_stream_ps(static_cast<float*>(p), v); }
INLINE void stream(void* p, V<double> v) { _mm256_stream_pd(static_cast<double*>(p), v); }
INLINE void stream(void* p, Halves halves) {
  _mm_stream_si128(static_cast<__m128i*>(p), reinterpret_cast<__m128i>(halves));
}

// With the sign in front nothing is out of range when halves are packed.
INLINE Halves high_halves(Words words) {
  const __m256i halves = _mm256_srai_epi32(reinterpret_cast<__m256i>(words), 16);
  return reinterpret_cast<Halves>(
      _mm_packs_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1)));
}

template <>
INLINE V<float> widen<Float16>(Halves halves) {
  return _mm256_cvtph_ps(reinterpret_cast<__m128i>(halves));
}

template <>
INLINE Halves narrow<Float16>(V<float> v) {
  return reinterpret_cast<Halves>(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

#include "end.inc"

#endif
