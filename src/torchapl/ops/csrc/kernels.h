// The kernels proper: how the work is cut into tasks, and how the sums of the tasks are put
// together.
#pragma once

#include <cstdint>

#include "primitives.h"

namespace torchapl {

// Dense arrays: x, g and out as (outer, units, inner) in `storage`; a, b, grad_a and grad_b as
// (hinges, units) in the type of the arithmetic, double for float64 storage and float otherwise.
struct Problem {
  int64_t outer = 0;
  int64_t units = 0;
  int64_t inner = 0;
  int64_t hinges = 0;
  Storage storage = Storage::float32;
  const void* x = nullptr;
  const void* g = nullptr;  // of the backward only
  void* out = nullptr;      // y or dx; a null pointer where nobody wants dx
  const void* a = nullptr;
  const void* b = nullptr;
  void* grad_a = nullptr;  // null pointers where nobody wants them
  void* grad_b = nullptr;
};

// Results do not depend on the number of threads, bit for bit: the tasks are a function of the
// sizes, and so is the order in which their sums are added.
void forward(const Problem& problem, const Capability& capability);
void backward(const Problem& problem, const Capability& capability);

// Into how many tasks the backward pass in single precision is cut.
int64_t tasks(int64_t outer, int64_t units, int64_t inner, int64_t hinges);

}  // namespace torchapl
