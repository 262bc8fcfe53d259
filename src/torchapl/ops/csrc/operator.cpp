#include "operator.h"

#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <atomic>

#include "geometry.h"
#include "kernels.h"

namespace torchapl {
namespace {

std::vector<const Capability*> runnable() {
  std::vector<const Capability*> found = {&baseline};
#if defined(__x86_64__) && defined(__GNUC__)
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

Storage storage_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return Storage::float32;
    case at::kDouble: return Storage::float64;
    case at::kBFloat16: return Storage::bfloat16;
    case at::kHalf: return Storage::float16;
    default: TORCH_CHECK_TYPE(false, "torchapl: no CPU kernel for ", type);
  }
}

Geometry geometry_of(const at::Tensor& tensor, int64_t unit_dim, int64_t unit_dims) {
  return find_geometry(tensor.sizes().vec(), tensor.strides().vec(), unit_dim, unit_dims);
}

bool same_layout(const at::Tensor& left, const at::Tensor& right) {
  for (int64_t d = 0; d < right.dim(); ++d) {
    if (right.size(d) != 1 && left.stride(d) != right.stride(d)) return false;
  }
  return left.scalar_type() == right.scalar_type();
}

// A tensor of the same values in the layout and precision of `like`.
at::Tensor laid_out(const at::Tensor& tensor, const at::Tensor& like) {
  return same_layout(tensor, like) ? tensor : at::empty_like(like).copy_(tensor);
}

// The arguments as the kernels take them: dense, of two precisions at most, hinges in memory order.
struct Arguments {
  at::Tensor x, a, b;
  Geometry geometry;
  std::vector<int64_t> to_memory;  // permutation of a parameter; empty where it is the identity

  Arguments(const at::Tensor& input, const at::Tensor& slope, const at::Tensor& offset,
            int64_t unit_dim) {
    const int64_t unit_dims = slope.dim() - 1;
    const bool twice = input.scalar_type() == at::kDouble || slope.scalar_type() == at::kDouble;
    const auto precision = twice ? at::kDouble : at::kFloat;
    x = twice ? input.to(at::kDouble) : input;
    geometry = geometry_of(x, unit_dim, unit_dims);
    if (!geometry.direct) {
      x = at::clone(x);
      geometry = geometry_of(x, unit_dim, unit_dims);
    }
    if (!geometry.direct) {
      x = x.contiguous();
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

  at::Tensor parameter(const at::Tensor& tensor, at::ScalarType precision) const {
    return (to_memory.empty() ? tensor : tensor.permute(to_memory)).to(precision).contiguous();
  }

  // The gradient of a parameter, from memory order and the precision of the arithmetic, in the layout of the
  // parameter: autograd would bring it there, and where map and parameter are both channels-last it is.
  at::Tensor finished(at::Tensor result, const at::Tensor& like) const {
    if (!to_memory.empty()) {
      std::vector<int64_t> back(to_memory.size());
      for (size_t i = 0; i < back.size(); ++i) back[to_memory[i]] = static_cast<int64_t>(i);
      result = result.permute(back);
    }
    const bool fits = like.is_non_overlapping_and_dense() && same_layout(result, like);
    return fits ? result : at::empty_like(like).copy_(result);
  }

  Problem problem() const {
    return {geometry.outer,     geometry.units,     geometry.inner, a.size(0),
            storage_of(x.scalar_type()), x.const_data_ptr(), nullptr, nullptr,
            a.const_data_ptr(), b.const_data_ptr(), nullptr,        nullptr};
  }
};

}  // namespace

at::Tensor apl(const at::Tensor& input, const at::Tensor& slope, const at::Tensor& offset,
               int64_t unit_dim) {
  at::Tensor output = at::empty_like(input);
  if (output.numel() == 0) return output;
  const Arguments arguments(input, slope, offset, unit_dim);
  const at::Tensor y = same_layout(output, arguments.x) ? output : at::empty_like(arguments.x);
  Problem problem = arguments.problem();
  problem.out = y.mutable_data_ptr();
  forward(problem, *current());
  return y.is_same(output) ? output : output.copy_(y);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> apl_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& slope,
    const at::Tensor& offset, int64_t unit_dim, std::array<bool, 3> output_mask) {
  const auto [wants_x, wants_a, wants_b] = output_mask;
  const auto unwanted = [](const at::Tensor& like) { return at::empty({0}, like.options()); };
  at::Tensor dx = wants_x ? at::empty_like(input) : unwanted(input);
  if (input.numel() == 0) {
    const auto zeros = [&](const at::Tensor& like, bool wanted) {
      return wanted ? at::zeros_like(like) : unwanted(like);
    };
    return {dx, zeros(slope, wants_a), zeros(offset, wants_b)};
  }

  const Arguments arguments(input, slope, offset, unit_dim);
  const at::Tensor g = laid_out(grad, arguments.x);
  Problem problem = arguments.problem();
  problem.g = g.const_data_ptr();
  at::Tensor out, da, db;
  if (wants_x) {
    out = same_layout(dx, arguments.x) ? dx : at::empty_like(arguments.x);
    problem.out = out.mutable_data_ptr();
  }
  if (wants_a) {
    da = at::empty(arguments.a.sizes(), arguments.a.options());
    problem.grad_a = da.mutable_data_ptr();
  }
  if (wants_b) {
    db = at::empty(arguments.b.sizes(), arguments.b.options());
    problem.grad_b = db.mutable_data_ptr();
  }
  backward(problem, *current());
  if (wants_x && !out.is_same(dx)) dx.copy_(out);
  return {dx, wants_a ? arguments.finished(da, slope) : unwanted(slope),
          wants_b ? arguments.finished(db, offset) : unwanted(offset)};
}

std::vector<std::string> capabilities() {
  std::vector<std::string> names;
  for (const Capability* capability : runnable()) names.emplace_back(capability->name);
  return names;
}

std::string capability() {
  return current().load()->name;
}

void set_capability(const std::string& name) {
  for (const Capability* capability : runnable()) {
    if (capability->name == name) {
      current() = capability;
      return;
    }
  }
  TORCH_CHECK_VALUE(false, "this machine has no instruction set ", name);
}

}  // namespace torchapl
