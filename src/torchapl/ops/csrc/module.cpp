// The Python module torchapl.ops._C: importing it registers the kernels with torch.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>

#include "geometry.h"
#include "kernels.h"
#include "operator.h"

namespace py = pybind11;

namespace {

// Binaries for another version of torch often load, and crash later. Not TORCH_VERSION: that of a nightly,
// 2.14.0.dev20260101, and of a build from source, 2.14.0a0, is 2.14.0.
void check_version() {
  const auto running = py::module_::import("torch").attr("__version__").cast<std::string>();
  if (running.substr(0, running.find('+')) != TORCHAPL_BUILT_FOR) {
    throw py::import_error("the kernels were built for torch " TORCHAPL_BUILT_FOR
                           ", this is torch " + running);
  }
}

py::tuple geometry(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                   int64_t unit_dim, int64_t unit_dims) {
  const auto found = torchapl::find_geometry(sizes, strides, unit_dim, unit_dims);
  return py::make_tuple(found.outer, found.units, found.inner, found.direct, found.unit_order);
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  check_version();
  torchapl::register_kernels();
  module.def("capability", torchapl::capability);
  // For tests and measurements; the library never calls these.
  module.def("capabilities", torchapl::capabilities);
  module.def("set_capability", torchapl::set_capability);
  module.def("geometry", geometry);
  module.def("tasks", torchapl::tasks);
}
