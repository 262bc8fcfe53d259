#include "geometry.h"

#include <algorithm>

namespace torchapl {

bool Geometry::permuted() const { return !std::is_sorted(unit_order.begin(), unit_order.end()); }

Geometry find_geometry(int64_t dims, const int64_t* sizes, const int64_t* strides, int64_t unit_dim,
                       int64_t unit_dims) {
  const auto is_unit = [&](int64_t d) { return unit_dim <= d && d < unit_dim + unit_dims; };
  Geometry geometry;

  // Axes in the order of memory, without those of size one.
  std::vector<int64_t> order;
  order.reserve(dims);
  for (int64_t d = 0; d < dims; ++d) {
    if (sizes[d] != 1) order.push_back(d);
  }
  const bool empty = std::find(sizes, sizes + dims, 0) != sizes + dims;
  if (!empty) {
    const auto longer = [&](int64_t left, int64_t right) { return strides[left] > strides[right]; };
    // stable_sort allocates; most tensors are in order.
    if (!std::is_sorted(order.begin(), order.end(), longer)) {
      std::stable_sort(order.begin(), order.end(), longer);
    }
    int64_t expected = 1;
    for (auto d = order.rbegin(); d != order.rend(); ++d) {
      geometry.dense = geometry.dense && strides[*d] == expected;
      expected *= sizes[*d];
    }
  }

  geometry.direct = geometry.dense;
  int64_t* extent = &geometry.outer;
  for (const int64_t d : order) {
    if (is_unit(d)) {
      geometry.direct = geometry.direct && extent != &geometry.inner;
      extent = &geometry.units;
      geometry.unit_order.push_back(d - unit_dim);
    } else if (extent == &geometry.units) {
      extent = &geometry.inner;
    }
    *extent *= sizes[d];
  }
  if (geometry.units == 1) {
    geometry.inner *= geometry.outer;
    geometry.outer = 1;
  }
  return geometry;
}

}  // namespace torchapl
