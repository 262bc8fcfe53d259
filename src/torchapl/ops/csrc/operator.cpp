#include "operator.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <sstream>
#include <stdexcept>
#include <tuple>

#include "geometry.h"
#include "kernels.h"

namespace torchapl {
namespace {

using torch::stable::Tensor;
using Sizes = torch::headeronly::IntHeaderOnlyArrayRef;

std::vector<const Capability*> runnable() {
  std::vector<const Capability*> found = {&baseline};
#ifdef TORCHAPL_X86
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found.push_back(&avx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    found.push_back(&avx512);
  }
#endif
  return found;
}

std::atomic<const Capability*>& current() {
  static std::atomic<const Capability*> chosen{runnable().back()};
  return chosen;
}

// What torch calls the types of elements, in the order of Storage.
const std::array<int32_t, 4>& dtypes() {
  static const std::array<int32_t, 4> codes = {
      aoti_torch_dtype_float32(), aoti_torch_dtype_float64(), aoti_torch_dtype_bfloat16(),
      aoti_torch_dtype_float16()};
  return codes;
}

int32_t dtype_of(const Tensor& tensor) {
  int32_t code = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &code));
  return code;
}

bool has_storage(const Tensor& tensor, Storage storage) {
  return dtype_of(tensor) == dtypes()[static_cast<size_t>(storage)];
}

Storage storage_of(const Tensor& tensor) {
  const auto& codes = dtypes();
  return static_cast<Storage>(std::find(codes.begin(), codes.end(), dtype_of(tensor)) -
                              codes.begin());
}

// As Python writes a tuple.
std::string shape_of(const Tensor& tensor) {
  std::ostringstream text;
  const Sizes sizes = tensor.sizes();
  for (size_t d = 0; d < sizes.size(); ++d) text << (d == 0 ? "" : ", ") << sizes[d];
  return '(' + text.str() + (sizes.size() == 1 ? ",)" : ")");
}

template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  std::ostringstream text;
  text << "torchapl: ";
  (text << ... << parts);
  throw std::invalid_argument(text.str());
}

void check_tensor(const char* name, const Tensor& tensor) {
  if (!tensor.is_cpu()) refuse(name, " must be on the CPU like the other arguments");
  const auto& codes = dtypes();
  if (std::find(codes.begin(), codes.end(), dtype_of(tensor)) == codes.end()) {
    refuse(name, " must be float64, float32, bfloat16 or float16");
  }
}

bool equal(Sizes left, Sizes right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end());
}

// Returns a non-negative unit_dim. Nothing outside the tensors is read or written for arguments
// that pass.
int64_t check(const Tensor& input, const Tensor& slope, const Tensor& offset, int64_t unit_dim) {
  check_tensor("input", input);
  check_tensor("slope", slope);
  check_tensor("offset", offset);
  const Sizes sizes = input.sizes(), hinges = slope.sizes();
  if (!equal(hinges, offset.sizes()) || dtype_of(slope) != dtype_of(offset)) {
    refuse("slope and offset must agree in shape and dtype, got ", shape_of(slope), " and ",
           shape_of(offset));
  }
  if (hinges.size() == 0 || hinges[0] == 0) {
    refuse("slope must have the shape (num_hinges, *unit_shape) with at least one hinge, got ",
           shape_of(slope));
  }
  const auto unit_dims = static_cast<int64_t>(hinges.size()) - 1;
  if (unit_dims == 0) return 0;
  const auto dims = static_cast<int64_t>(sizes.size());
  const int64_t first = unit_dim < 0 ? unit_dim + dims : unit_dim;
  if (first < 0 || first > dims - unit_dims ||
      !std::equal(hinges.begin() + 1, hinges.end(), sizes.begin() + first)) {
    refuse("the units of a slope ", shape_of(slope), " do not fit an input ", shape_of(input),
           " at unit_dim=", unit_dim);
  }
  return first;
}

Geometry geometry_of(const Tensor& tensor, int64_t unit_dim, int64_t unit_dims) {
  return find_geometry(tensor.dim(), tensor.sizes().data(), tensor.strides().data(), unit_dim,
                       unit_dims);
}

bool same_layout(const Tensor& left, const Tensor& right) {
  const Sizes sizes = right.sizes(), one = left.strides(), other = right.strides();
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1 && one[d] != other[d]) return false;
  }
  return dtype_of(left) == dtype_of(right);
}

// Not torch::stable::empty_like, which finds its operator by name: a microsecond.
Tensor empty_strided(Sizes sizes, const int64_t* strides, int32_t dtype) {
  AtenTensorHandle handle = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()),
                                                         sizes.data(), strides, dtype,
                                                         aoti_torch_device_type_cpu(), 0, &handle));
  return Tensor(handle);
}

Tensor empty_contiguous(Sizes sizes, int32_t dtype) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(sizes[d], 1);
  }
  return empty_strided(sizes, strides.data(), dtype);
}

// In the layout that torch.empty_like gives.
Tensor new_like(const Tensor& like) {
  return like.is_contiguous() ? empty_strided(like.sizes(), like.strides().data(), dtype_of(like))
                              : torch::stable::empty_like(like);
}

Tensor unwanted(const Tensor& like) {
  const int64_t none = 0;
  return empty_contiguous(Sizes(&none, 1), dtype_of(like));
}

Tensor copied(const Tensor& tensor, Tensor target) { return torch::stable::copy_(target, tensor); }

// A tensor of the same values in the layout and precision of `like`.
Tensor laid_out(const Tensor& tensor, const Tensor& like) {
  return same_layout(tensor, like) ? tensor : copied(tensor, new_like(like));
}

Tensor permuted(const Tensor& tensor, const std::vector<int64_t>& axes) {
  std::vector<int64_t> sizes, strides;
  for (const int64_t axis : axes) {
    sizes.push_back(tensor.size(axis));
    strides.push_back(tensor.stride(axis));
  }
  AtenTensorHandle handle = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(
      aoti_torch_as_strided(tensor.get(), sizes.data(), strides.data(), &handle));
  return Tensor(handle);
}

// The arguments as the kernels take them: dense, of two precisions at most, hinges in memory order.
struct Arguments {
  Tensor x, a, b;
  Geometry geometry;
  std::vector<int64_t> to_memory;  // permutation of a parameter; empty where it is the identity

  Arguments(const Tensor& input, const Tensor& slope, const Tensor& offset, int64_t unit_dim)
      : x(input), a(slope), b(offset) {
    const int64_t unit_dims = slope.dim() - 1;
    const bool twice = has_storage(input, Storage::float64) || has_storage(slope, Storage::float64);
    const Storage precision = twice ? Storage::float64 : Storage::float32;
    if (twice && !has_storage(input, Storage::float64)) {
      x = torch::stable::to(input, torch::headeronly::ScalarType::Double);
    }
    geometry = geometry_of(x, unit_dim, unit_dims);
    if (!geometry.direct) {
      x = torch::stable::clone(x);
      geometry = geometry_of(x, unit_dim, unit_dims);
    }
    if (!geometry.direct) {
      x = torch::stable::contiguous(x);
      geometry = geometry_of(x, unit_dim, unit_dims);
    }
    if (geometry.permuted()) {
      // Axes of size one may stand anywhere.
      to_memory.push_back(0);
      for (const int64_t axis : geometry.unit_order) to_memory.push_back(axis + 1);
      for (int64_t axis = 1; axis <= unit_dims; ++axis) {
        if (slope.size(axis) == 1) to_memory.push_back(axis);
      }
    }
    a = parameter(slope, precision);
    b = parameter(offset, precision);
  }

  Tensor parameter(const Tensor& tensor, Storage precision) const {
    const Tensor ordered = to_memory.empty() ? tensor : permuted(tensor, to_memory);
    if (has_storage(ordered, precision) && ordered.is_contiguous()) return ordered;
    return copied(ordered,
                  empty_contiguous(ordered.sizes(), dtypes()[static_cast<size_t>(precision)]));
  }

  // The gradient of a parameter, from memory order and the precision of the arithmetic, in the
  // layout of the parameter: autograd would bring it there, and where map and parameter are both
  // channels-last it is.
  Tensor finished(Tensor result, const Tensor& like) const {
    if (!to_memory.empty()) {
      std::vector<int64_t> back(to_memory.size());
      for (size_t i = 0; i < back.size(); ++i) back[to_memory[i]] = static_cast<int64_t>(i);
      result = permuted(result, back);
    }
    return laid_out(result, like);
  }

  Problem problem() const {
    Problem problem;
    problem.outer = geometry.outer;
    problem.units = geometry.units;
    problem.inner = geometry.inner;
    problem.hinges = a.size(0);
    problem.storage = storage_of(x);
    problem.x = x.const_data_ptr();
    problem.a = a.const_data_ptr();
    problem.b = b.const_data_ptr();
    return problem;
  }
};

Tensor apl(const Tensor& input, const Tensor& slope, const Tensor& offset, int64_t unit_dim) {
  unit_dim = check(input, slope, offset, unit_dim);
  Tensor output = new_like(input);
  if (output.numel() == 0) return output;
  const Arguments arguments(input, slope, offset, unit_dim);
  const Tensor y = same_layout(output, arguments.x) ? output : new_like(arguments.x);
  Problem problem = arguments.problem();
  problem.out = y.mutable_data_ptr();
  forward(problem, *current());
  return y.get() == output.get() ? output : copied(y, output);
}

std::tuple<Tensor, Tensor, Tensor> apl_backward(const Tensor& grad, const Tensor& input,
                                                const Tensor& slope, const Tensor& offset,
                                                int64_t unit_dim,
                                                const std::vector<bool>& output_mask) {
  unit_dim = check(input, slope, offset, unit_dim);
  check_tensor("grad", grad);
  if (!equal(grad.sizes(), input.sizes())) {
    refuse("grad must have the shape of input, got ", shape_of(grad), " and ", shape_of(input));
  }
  if (output_mask.size() != 3) refuse("output_mask must have 3 entries");
  const bool wants_x = output_mask[0], wants_a = output_mask[1], wants_b = output_mask[2];

  Tensor dx = wants_x ? new_like(input) : unwanted(input);
  if (input.numel() == 0) {
    const auto zeros = [](const Tensor& like) {
      Tensor result = new_like(like);
      return torch::stable::zero_(result);
    };
    return {dx, wants_a ? zeros(slope) : unwanted(slope),
            wants_b ? zeros(offset) : unwanted(offset)};
  }

  const Arguments arguments(input, slope, offset, unit_dim);
  const Tensor g = laid_out(grad, arguments.x);
  Problem problem = arguments.problem();
  problem.g = g.const_data_ptr();
  Tensor out = dx, da = dx, db = dx;
  if (wants_x) {
    if (!same_layout(dx, arguments.x)) out = new_like(arguments.x);
    problem.out = out.mutable_data_ptr();
  }
  if (wants_a) {
    da = empty_contiguous(arguments.a.sizes(), dtype_of(arguments.a));
    problem.grad_a = da.mutable_data_ptr();
  }
  if (wants_b) {
    db = empty_contiguous(arguments.b.sizes(), dtype_of(arguments.b));
    problem.grad_b = db.mutable_data_ptr();
  }
  backward(problem, *current());
  if (out.get() != dx.get()) copied(out, dx);
  return {dx, wants_a ? arguments.finished(da, slope) : unwanted(slope),
          wants_b ? arguments.finished(db, offset) : unwanted(offset)};
}

}  // namespace

void register_kernels() {
  using torch::stable::detail::StableLibrary;
  // Never destroyed: the kernels serve until the process ends.
  static auto& library =
      *new StableLibrary(StableLibrary::Kind::IMPL, "torchapl", "CPU", "operator.cpp", __LINE__);
  library.impl("apl", TORCH_BOX(&apl));
  library.impl("apl_backward", TORCH_BOX(&apl_backward));
}

std::vector<std::string> capabilities() {
  std::vector<std::string> names;
  for (const Capability* capability : runnable()) names.emplace_back(capability->name);
  return names;
}

std::string capability() { return current().load()->name; }

void set_capability(const std::string& name) {
  for (const Capability* capability : runnable()) {
    if (capability->name == name) {
      current() = capability;
      return;
    }
  }
  throw std::invalid_argument("this machine has no instruction set " + name);
}

}  // namespace torchapl
