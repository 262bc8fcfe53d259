// Curves frozen for inference: the operator torchapl::curve and its innermost loops.
#pragma once

#include <cstdint>

#include "elements.h"

namespace torchapl {

// A matrix whose element x in column c becomes
//   skip * x + shift + scale * max(0, x - center) + sum of jump * max(0, position - x)
// with the numbers of that column, or with those of the first where all columns share a curve.
template <typename E>
struct Curves {
  using T = Arithmetic<E>;
  const E* x;
  E* y;
  int64_t rows;
  int64_t n;       // columns
  int64_t stride;  // from row to row
  bool shared;
  bool past;      // y goes past the caches; its vectors are aligned
  const T* line;  // rows of skip, shift, scale and center
  const T* jump;  // a row for every hinge
  const T* position;
  int64_t hinges;
  int64_t pitch;  // from row to row of the numbers
};

template <typename E>
struct CurvePrimitives {
  void (*hinges)(const Curves<E>& curves);
  // n elements of one curve by its table, see curve.inc; a null pointer where there is none.
  void (*lookup)(const E* x, E* y, int64_t n, const float* table, int64_t levels, bool past);
};

template <typename List>
struct CurvePrimitivesOf;

template <typename... E>
struct CurvePrimitivesOf<ElementList<E...>> : CurvePrimitives<E>... {
  // The fewest kinks for which a table is faster than hinges.
  int64_t fewest_kinks;
};

// The operator on a stack of arguments, as torch calls it; numbers are torch's StableIValue, whose
// header has no place among those of the loops.
void boxed_curve(uint64_t* stack, uint64_t, uint64_t);

}  // namespace torchapl
