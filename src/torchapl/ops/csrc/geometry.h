// How a tensor is seen by the kernels: a pure function of sizes and strides, in 64-bit arithmetic.
#pragma once

#include <cstdint>
#include <vector>

namespace torchapl {

// The memory of a tensor as (outer, units, inner), C-contiguous.
struct Geometry {
  int64_t outer = 1;
  int64_t units = 1;
  int64_t inner = 1;
  bool dense = true;  // the memory has no holes and no overlaps
  // Dense, and no foreign axes lie between those of the units.
  bool direct = true;
  // The axes of the units that are longer than one (0 = first axis of unit_shape), outermost first.
  std::vector<int64_t> unit_order;

  bool permuted() const;
};

// Strides of axes of size one, and all strides of an empty tensor, have no meaning and are ignored.
Geometry find_geometry(int64_t dims, const int64_t* sizes, const int64_t* strides, int64_t unit_dim,
                       int64_t unit_dims);

}  // namespace torchapl
