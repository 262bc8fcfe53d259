// The types of elements that the kernels take. A new one has its lines here, its conversion in
// memory.inc and its name in torch in operator.cpp.
#pragma once

#include <cstdint>

namespace torchapl {

// Elements in memory beside float and double.
struct BFloat16 {
  uint16_t bits;
};

struct Float16 {
  uint16_t bits;
};

template <typename... E>
struct ElementList {};

// The same types in the same order, once for the compiler and once for the run.
using Elements = ElementList<float, double, BFloat16, Float16>;
enum class Storage { float32, float64, bfloat16, float16 };

// The type of the arithmetic on elements E.
template <typename E>
struct ArithmeticOf {
  using type = float;
};

template <>
struct ArithmeticOf<double> {
  using type = double;
};

template <typename E>
using Arithmetic = typename ArithmeticOf<E>::type;

}  // namespace torchapl
