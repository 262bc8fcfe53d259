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

INLINE Halves load_halves(const void* p, int64_t n) {
  return reinterpret_cast<Halves>(_mm256_maskz_loadu_epi16(first(n), p));
}

INLINE void store_halves(void* p, Halves halves, int64_t n) {
  _mm256_mask_storeu_epi16(p, first(n), reinterpret_cast<__m256i>(halves));
}

template <>
struct Active<float> {
  INLINE Active(V<float> left, V<float> right)
      : mask(_mm512_cmp_ps_mask(left, right, _CMP_NLE_UQ)) {}
  INLINE V<float> only(V<float> value) const { return _mm512_maskz_mov_ps(mask, value); }
  INLINE V<float> add(V<float> to, V<float> value) const {
    return _mm512_mask_add_ps(to, mask, to, value);
  }
  INLINE V<float> add_product(V<float> to, V<float> value, V<float> by) const {
    return _mm512_mask3_fmadd_ps(value, by, to, mask);
  }
  INLINE V<float> subtract_product(V<float> from, V<float> value, V<float> by) const {
    return _mm512_mask3_fnmadd_ps(value, by, from, mask);
  }

 private:
  __mmask16 mask;
};

template <>
struct Active<double> {
  INLINE Active(V<double> left, V<double> right)
      : mask(_mm512_cmp_pd_mask(left, right, _CMP_NLE_UQ)) {}
  INLINE V<double> only(V<double> value) const { return _mm512_maskz_mov_pd(mask, value); }
  INLINE V<double> add(V<double> to, V<double> value) const {
    return _mm512_mask_add_pd(to, mask, to, value);
  }
  INLINE V<double> add_product(V<double> to, V<double> value, V<double> by) const {
    return _mm512_mask3_fmadd_pd(value, by, to, mask);
  }
  INLINE V<double> subtract_product(V<double> from, V<double> value, V<double> by) const {
    return _mm512_mask3_fnmadd_pd(value, by, from, mask);
  }

 private:
  __mmask8 mask;
};

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
