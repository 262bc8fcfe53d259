// The kernels proper: how the work is cut into tasks, and how the sums of the tasks are put together.
#pragma once

#include <cstdint>

#include "primitives.h"

namespace torchapl {

// Dense arrays: x, g and out as (outer, units, inner) in `storage`; a, b, grad_a and grad_b as
// (hinges, units) in the type of the arithmetic, double for float64 storage and float otherwise.
struct Problem {
  int64_t outer;
  int64_t units;
  int64_t inner;
  int64_t hinges;
  Storage storage;
  const void* x;
  const void* g;   // of the backward only
  void* out;       // y or dx; a null pointer where nobody wants dx
  const void* a;
  const void* b;
  void* grad_a;  // null pointers where nobody wants them
  void* grad_b;
};

// Results do not depend on the number of threads, bit for bit: the tasks are a function of the sizes, and
// so is the order in which their sums are added.
void forward(const Problem& problem, const Capability& capability);
void backward(const Problem& problem, const Capability& capability);

// Into how many tasks the backward pass in single precision is cut.
int64_t tasks(int64_t outer, int64_t units, int64_t inner, int64_t hinges);

}  // namespace torchapl
