#include "operator.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <stdexcept>

#include "curve.h"
#include "geometry.h"
#include "kernels.h"
#include "segments.h"
#include "tensor.h"

namespace torchapl {
namespace {

std::vector<const Capability*> runnable() {
  std::vector<const Capability*> found = {&baseline};
#ifdef TORCHAPL_X86
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) found.push_back(&avx2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    found.push_back(&avx512);
#ifdef TORCHAPL_X86_BF16
    if (__builtin_cpu_supports("avx512bf16")) found.push_back(&avx512_bf16);
#endif
  }
#endif
  return found;
}

std::atomic<const Capability*>& current() {
  static std::atomic<const Capability*> chosen{runnable().back()};
  return chosen;
}

int32_t dtype_of(Storage storage) { return dtypes()[static_cast<size_t>(storage)]; }

bool is_double(const Tensor& tensor) { return tensor.dtype() == dtype_of(Storage::float64); }

// As Python writes a tuple.
std::string shape_of(const Tensor& tensor) {
  std::string text;
  const Extents sizes = tensor.sizes();
  for (const int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return '(' + text + (sizes.dims == 1 ? ",)" : ")");
}

// Returns a non-negative unit_dim. Nothing outside the tensors is read or written for arguments
// that pass.
int64_t check(const Tensor& input, const Tensor& slope, const Tensor& offset, int64_t unit_dim) {
  check_tensor("input", input);
  check_tensor("slope", slope);
  check_tensor("offset", offset);
  const Extents sizes = input.sizes(), hinges = slope.sizes();
  if (!(hinges == offset.sizes()) || slope.dtype() != offset.dtype()) {
    refuse("slope and offset must agree in shape and dtype, got " + shape_of(slope) + " and " +
           shape_of(offset));
  }
  if (hinges.dims == 0 || hinges[0] == 0) {
    refuse("slope must have the shape (num_hinges, *unit_shape) with at least one hinge, got " +
           shape_of(slope));
  }
  const int64_t unit_dims = hinges.dims - 1;
  if (unit_dims == 0) return 0;
  const int64_t first = unit_dim < 0 ? unit_dim + sizes.dims : unit_dim;
  if (first < 0 || first > sizes.dims - unit_dims ||
      !std::equal(hinges.begin() + 1, hinges.end(), sizes.begin() + first)) {
    refuse("the units of a slope " + shape_of(slope) + " do not fit an input " + shape_of(input) +
           " at unit_dim=" + std::to_string(unit_dim));
  }
  return first;
}

Geometry geometry_of(const Tensor& tensor, int64_t unit_dim, int64_t unit_dims) {
  return find_geometry(tensor.dim(), tensor.sizes().first, tensor.strides().first, unit_dim,
                       unit_dims);
}

// A tensor of the same values in the layout and precision of `like`.
Tensor laid_out(const Tensor& tensor, const Tensor& like) {
  if (same_layout(tensor, like)) return tensor.share();
  Tensor target = empty_like(like);
  copy(tensor, target);
  return target;
}

Tensor unwanted(const Tensor& like) {
  const int64_t none = 0;
  return empty_contiguous({&none, 1}, like.dtype());
}

// The arguments as the kernels take them: dense, of two precisions at most, hinges in memory order.
struct Arguments {
  Tensor x, a, b;
  Geometry geometry;
  std::vector<int64_t> to_memory;  // permutation of a parameter; empty where it is the identity

  Arguments(const Tensor& input, const Tensor& slope, const Tensor& offset, int64_t unit_dim)
      : x(input.share()), a(nullptr), b(nullptr) {
    const int64_t unit_dims = slope.dim() - 1;
    const Storage precision =
        is_double(input) || is_double(slope) ? Storage::float64 : Storage::float32;
    geometry = geometry_of(x, unit_dim, unit_dims);
    if (!geometry.direct) {
      x = clone(x);
      geometry = geometry_of(x, unit_dim, unit_dims);
    }
    if (!geometry.direct) {
      x = copied(x, empty_contiguous(x.sizes(), x.dtype()));
      geometry = geometry_of(x, unit_dim, unit_dims);
    }
    if (precision == Storage::float64 && !is_double(x)) {
      x = copied(x, empty_strided(x.sizes(), x.strides().first, dtype_of(precision)));
    }
    if (geometry.permuted()) {
      // Axes of size one may stand anywhere.
      to_memory.push_back(0);
      for (const int64_t axis : geometry.unit_order) to_memory.push_back(axis + 1);
      for (int64_t axis = 1; axis <= unit_dims; ++axis) {
        if (slope.sizes()[axis] == 1) to_memory.push_back(axis);
      }
    }
    a = parameter(slope, precision);
    b = parameter(offset, precision);
  }

  static Tensor copied(const Tensor& source, Tensor target) {
    copy(source, target);
    return target;
  }

  Tensor parameter(const Tensor& tensor, Storage precision) const {
    Tensor ordered = to_memory.empty() ? tensor.share() : permuted(tensor, to_memory);
    if (ordered.dtype() == dtype_of(precision) && ordered.is_contiguous()) return ordered;
    return copied(ordered, empty_contiguous(ordered.sizes(), dtype_of(precision)));
  }

  // The gradient of a parameter, from memory order and the precision of the arithmetic, in the
  // layout of the parameter: autograd would bring it there, and where map and parameter are both
  // channels-last it is.
  Tensor finished(const Tensor& result, const Tensor& like) const {
    if (to_memory.empty()) return laid_out(result, like);
    std::vector<int64_t> back(to_memory.size());
    for (size_t i = 0; i < back.size(); ++i) back[to_memory[i]] = static_cast<int64_t>(i);
    return laid_out(permuted(result, back), like);
  }

  Problem problem() const {
    Problem problem;
    problem.outer = geometry.outer;
    problem.units = geometry.units;
    problem.inner = geometry.inner;
    problem.hinges = a.sizes()[0];
    problem.storage = static_cast<Storage>(std::find(dtypes().begin(), dtypes().end(), x.dtype()) -
                                           dtypes().begin());
    problem.x = x.data();
    problem.a = a.data();
    problem.b = b.data();
    return problem;
  }
};

Tensor apl(const Tensor& input, const Tensor& slope, const Tensor& offset, int64_t unit_dim) {
  unit_dim = check(input, slope, offset, unit_dim);
  Tensor output = empty_like(input);
  if (output.numel() == 0) return output;
  const Arguments arguments(input, slope, offset, unit_dim);
  const Tensor y = same_layout(output, arguments.x) ? output.share() : empty_like(arguments.x);
  Problem problem = arguments.problem();
  problem.out = y.mutable_data();
  forward(problem, *current());
  if (y.data() != output.data()) copy(y, output);
  return output;
}

struct Gradients {
  Tensor x, a, b;
};

Gradients apl_backward(const Tensor& grad, const Tensor& input, const Tensor& slope,
                       const Tensor& offset, int64_t unit_dim, const std::vector<bool>& wanted) {
  unit_dim = check(input, slope, offset, unit_dim);
  check_tensor("grad", grad);
  if (!(grad.sizes() == input.sizes())) {
    refuse("grad must have the shape of input, got " + shape_of(grad) + " and " + shape_of(input));
  }
  if (wanted.size() != 3) refuse("output_mask must have 3 entries");

  Gradients gradients = {wanted[0] ? empty_like(input) : unwanted(input), Tensor(nullptr),
                         Tensor(nullptr)};
  if (input.numel() == 0) {
    const auto zeros = [](const Tensor& like) {
      // empty_like has no holes.
      Tensor result = empty_like(like);
      const size_t bytes = result.numel() * aoti_torch_dtype_element_size(result.dtype());
      if (bytes > 0) std::memset(result.mutable_data(), 0, bytes);
      return result;
    };
    gradients.a = wanted[1] ? zeros(slope) : unwanted(slope);
    gradients.b = wanted[2] ? zeros(offset) : unwanted(offset);
    return gradients;
  }

  const Arguments arguments(input, slope, offset, unit_dim);
  const Tensor g = laid_out(grad, arguments.x);
  Problem problem = arguments.problem();
  problem.g = g.data();
  Tensor dx(nullptr), da(nullptr), db(nullptr);
  if (wanted[0]) {
    const bool fits = same_layout(gradients.x, arguments.x);
    dx = fits ? gradients.x.share() : empty_like(arguments.x);
    problem.out = dx.mutable_data();
  }
  if (wanted[1]) {
    da = empty_contiguous(arguments.a.sizes(), arguments.a.dtype());
    problem.grad_a = da.mutable_data();
  }
  if (wanted[2]) {
    db = empty_contiguous(arguments.b.sizes(), arguments.b.dtype());
    problem.grad_b = db.mutable_data();
  }
  backward(problem, *current());
  if (wanted[0] && dx.data() != gradients.x.data()) copy(dx, gradients.x);
  gradients.a = wanted[1] ? arguments.finished(da, slope) : unwanted(slope);
  gradients.b = wanted[2] ? arguments.finished(db, offset) : unwanted(offset);
  return gradients;
}

std::vector<bool> bools_at(StableIValue* stack, int64_t i) {
  const auto list = reinterpret_cast<StableListHandle>(stack[i]);
  size_t size = 0;
  bool failed = torch_list_size(list, &size) != 0;
  std::vector<bool> values(failed ? 0 : size);
  for (size_t k = 0; k < values.size(); ++k) {
    StableIValue value = 0;
    failed = failed || torch_list_get_item(list, k, &value) != 0;
    values[k] = value != 0;
  }
  failed = torch_delete_list(list) != 0 || failed;
  expect(failed, "read a list");
  return values;
}

void boxed_apl(StableIValue* stack, uint64_t, uint64_t) {
  const Tensor input = tensor_at(stack, 0), slope = tensor_at(stack, 1);
  const Tensor offset = tensor_at(stack, 2);
  stack[0] = given_away(apl(input, slope, offset, static_cast<int64_t>(stack[3])));
}

void boxed_apl_backward(StableIValue* stack, uint64_t, uint64_t) {
  const Tensor grad = tensor_at(stack, 0), input = tensor_at(stack, 1);
  const Tensor slope = tensor_at(stack, 2), offset = tensor_at(stack, 3);
  const std::vector<bool> mask = bools_at(stack, 5);
  Gradients gradients =
      apl_backward(grad, input, slope, offset, static_cast<int64_t>(stack[4]), mask);
  stack[0] = given_away(std::move(gradients.x));
  stack[1] = given_away(std::move(gradients.a));
  stack[2] = given_away(std::move(gradients.b));
}

}  // namespace

void register_kernels() {
  // Never deleted: the kernels serve until the process ends.
  TorchLibraryHandle library = nullptr;
  expect(aoti_torch_library_init_impl("torchapl", "CPU", "operator.cpp", __LINE__, &library),
         "open the library of operators");
  const auto take = [&](const char* name, void (*kernel)(StableIValue*, uint64_t, uint64_t)) {
    expect(torch_library_impl(library, name, kernel, TORCH_VERSION_2_10_0), "take a kernel");
  };
  take("apl", boxed_apl);
  take("apl_backward", boxed_apl_backward);
  take("curve", boxed_curve);
  take("segment_gradients", boxed_segment_gradients);
  take("segment_step", boxed_segment_step);
}

std::vector<std::string> capabilities() {
  std::vector<std::string> names;
  for (const Capability* capability : runnable()) names.emplace_back(capability->name);
  return names;
}

std::string capability() { return current().load()->name; }

const Capability& current_capability() { return *current(); }

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
