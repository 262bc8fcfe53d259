// The innermost loops, compiled once per instruction set; everything around them is in kernels.cpp.
#pragma once

#include <cstdint>

#include "curve.h"
#include "elements.h"

namespace torchapl {

// A matrix of elements. Columns come in groups of LANES: column c has the hinges a[i] and b[i] with
// i = s * pitch + c / LANES * group + c % LANES; its sums are sum_a[i] and sum_b[i]. The last group
// has room for all its columns. With a group of 0 all columns belong to one unit. No pointer needs
// to be aligned.
constexpr int64_t LANES = 16;
// Where backward adds to sums, b is at a + LANES, sum_b at sum_a + LANES, and this is the pitch.
constexpr int64_t GROUPED_PITCH = 2 * LANES;
// Rows that may be complete.
constexpr int64_t FEW_ROWS = 8;

template <typename E>
struct Forward {
  using T = Arithmetic<E>;
  const E* x;
  E* y;
  int64_t rows;
  int64_t n;       // columns
  int64_t stride;  // from row to row
  int64_t ahead;   // columns from an element to the one to be fetched meanwhile
  const T* a;
  const T* b;
  bool finite;  // whether all a and b are known to be
  bool past;    // y goes past the caches; its vectors are aligned
  int64_t hinges;
  int64_t pitch;  // from hinge to hinge
  int64_t group;  // from LANES columns to the next
};

template <typename E>
struct Backward {
  using T = Arithmetic<E>;
  const E* x;
  const E* g;
  E* dx;
  int64_t rows;
  int64_t n;
  int64_t stride;      // of x and g
  int64_t out_stride;  // of dx; 0 lets all rows overwrite one, for a dx that nobody wants
  int64_t ahead;
  const T* a;
  const T* b;
  // The gradient of a slope is the sum of g (b - x) over the elements below the hinge b. To spare
  // instructions for every hinge and element, sum_a is that of g (c - x), with one c for all hinges
  // of a column, and sum_b that of g, which the gradient of the offset needs anyway. c is the
  // largest hinge, so that what cancels afterwards is never larger than what is summed for that
  // hinge. A null pointer lets sum_a be the gradient itself; with references hinges and slopes have
  // to be finite.
  const T* reference;
  T* sum_a;  // null pointers if unwanted
  T* sum_b;
  // Few rows, and all there are: the gradients replace what is at sum_a and sum_b.
  bool complete;
  bool past;  // dx goes past the caches, see Forward
  int64_t hinges;
  int64_t pitch;
  int64_t group;
};

template <typename E>
struct Primitives {
  using T = Arithmetic<E>;
  void (*forward)(const Forward<E>& arguments);
  void (*backward)(const Backward<E>& arguments);
  // Moves n sums to those in double: totals += sums (the first time, totals = sums), sums = 0.
  void (*flush)(T* sums, double* totals, int64_t n, bool first);
  // Moves groups of LANES sums each to one in double: totals[k] = the sum of group k, sums = 0.
  void (*collapse)(T* sums, double* totals, int64_t groups);
  // The gradients of a hinge of n units, from sums in double; null pointers as in Backward.
  void (*finish)(const double* sum_a, const double* sum_b, const T* a, const T* b,
                 const T* reference, T* grad_a, T* grad_b, int64_t n);
  // The same of all hinges, from sums and hinges in groups; gradients of hinges follow each other
  // at `units`.
  void (*finish_groups)(const T* sums, const T* a, const T* reference, T* grad_a, T* grad_b,
                        int64_t n, int64_t hinges, int64_t units);
  // The references of n columns.
  void (*refer)(const T* b, int64_t hinges, int64_t pitch, int64_t group, T* reference, int64_t n);
  // The hinges of one unit, `units` apart, to a group of columns, and their reference unless null.
  void (*spread)(const T* a, const T* b, int64_t hinges, int64_t units, T* to, T* reference);
  bool (*all_finite)(const T* values, int64_t n);
  bool streams;  // whether anything can go past the caches
};

// The primitives of every type of element, each found by its type.
template <typename List>
struct PrimitivesOf;

template <typename... E>
struct PrimitivesOf<ElementList<E...>> : Primitives<E>... {};

struct Capability {
  const char* name;
  PrimitivesOf<Elements> primitives;
  CurvePrimitivesOf<Elements> curves;
};

extern const Capability baseline;
#if defined(__x86_64__) && defined(__GNUC__)
#define TORCHAPL_X86
extern const Capability avx2;
extern const Capability avx512;
#if defined(__clang__) || __GNUC__ >= 10
#define TORCHAPL_X86_BF16
extern const Capability avx512_bf16;
#endif
#endif

}  // namespace torchapl
