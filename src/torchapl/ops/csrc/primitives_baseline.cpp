// The instruction set of every machine of the target: SSE2 on x86-64, NEON on ARM.
#include <torch/headeronly/util/Half.h>

#define TORCHAPL_CAPABILITY baseline
#define TORCHAPL_NAME "baseline"
#define TORCHAPL_BYTES 16

#include "begin.inc"
#include "unmasked.inc"

// 0 > v is false for NaN.
template <typename Vector>
INLINE Vector relu(Vector v) {
  const Vector zero = {};
  return zero > v ? zero : v;
}

template <typename Vector>
INLINE Vector relu_of_number(Vector v) {
  return relu(v);
}

template <typename T>
INLINE V<T> load_lanes(const T* p, int64_t n) {
  V<T> v = {};
  for (int64_t i = 0; i < n; ++i) v[i] = p[i];
  return v;
}

template <typename T>
INLINE void store_lanes(T* p, V<T> v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
}

INLINE Halves high_halves(Words words) { return __builtin_convertvector(words >> 16, Halves); }

template <>
INLINE V<float> widen<Float16>(Halves halves) {
  V<float> v = {};
  for (int i = 0; i < 4; ++i) v[i] = c10::Half(halves[i], c10::Half::from_bits());
  return v;
}

template <>
INLINE Halves narrow<Float16>(V<float> v) {
  Halves halves = {};
  for (int i = 0; i < 4; ++i) halves[i] = c10::Half(v[i]).x;
  return halves;
}

#include "end.inc"
