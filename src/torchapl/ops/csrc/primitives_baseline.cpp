// The instruction set of every machine of the target: SSE2 on x86-64, NEON on ARM.
#include "primitives.h"

#include <c10/util/Half.h>

#define INLINE inline __attribute__((always_inline))
#define TORCHAPL_BYTES 16

namespace torchapl {
namespace {

#include "vectors.inc"

// 0 > v is false for NaN.
template <typename Vector>
INLINE Vector relu(Vector v) {
  const Vector zero = {};
  return zero > v ? zero : v;
}

template <typename T>
INLINE V<T> load_some(const T* p, int64_t n) {
  T lanes[W<T>] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}

template <typename T>
INLINE void store_some(T* p, V<T> v, int64_t n) {
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
}

INLINE V<float> widen_float16(Halves halves) {
  V<float> v = {};
  for (int i = 0; i < 4; ++i) v[i] = c10::Half(halves[i], c10::Half::from_bits());
  return v;
}

INLINE Halves narrow_float16(V<float> v) {
  Halves halves = {};
  for (int i = 0; i < 4; ++i) halves[i] = c10::Half(v[i]).x;
  return halves;
}

#include "convert.inc"
#include "kernel.inc"

}  // namespace

const Capability baseline = {"baseline", primitives<float>(), primitives<double>(),
                           primitives<BFloat16>(), primitives<Float16>()};

}  // namespace torchapl
