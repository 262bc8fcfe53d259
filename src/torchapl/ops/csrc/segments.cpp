#include "segments.h"

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <cstring>
#include <type_traits>
#include <vector>

#include "geometry.h"
#include "tensor.h"

namespace torchapl {
namespace {

using Tensors = std::vector<Tensor>;

Tensors tensors_at(StableIValue* stack, int64_t i) {
  const auto list = reinterpret_cast<StableListHandle>(stack[i]);
  size_t size = 0;
  bool failed = torch_list_size(list, &size) != 0;
  Tensors tensors;
  tensors.reserve(size);
  for (size_t k = 0; k < size && !failed; ++k) {
    StableIValue value = 0;
    failed = torch_list_get_item(list, k, &value) != 0;
    if (!failed) tensors.push_back(tensor_at(&value, 0));
  }
  failed = torch_delete_list(list) != 0 || failed;
  expect(failed, "read a list");
  return tensors;
}

StableIValue list_of(Tensors tensors) {
  StableListHandle list = nullptr;
  expect(torch_new_list_reserve_size(tensors.size(), &list), "make a list");
  for (Tensor& tensor : tensors) {
    expect(torch_list_push_back(list, given_away(std::move(tensor))), "make a list");
  }
  return reinterpret_cast<StableIValue>(list);
}

double number_at(const StableIValue* stack, int64_t i) {
  double value = 0;
  static_assert(sizeof value == sizeof stack[i]);
  std::memcpy(&value, stack + i, sizeof value);
  return value;
}

// Half precision is computed in float.
template <typename E>
using Precise = std::conditional_t<std::is_same_v<E, double>, double, float>;

// The gradient by the slope of a segment is that by the hinge on its left, less that by its own.
// Both have the decay of the slopes in them.
template <typename E, typename T = Precise<E>>
void turn(const E* g, const E* a, E* turned, int64_t hinges, int64_t units, T unit, T decay) {
  for (int64_t i = 0; i < units; ++i) turned[i] = -unit * (T(g[i]) + decay * T(a[i]));
  for (int64_t s = 1; s < hinges; ++s) {
    const E* __restrict left_g = g + (s - 1) * units, * __restrict own_g = g + s * units;
    const E* __restrict left_a = a + (s - 1) * units, * __restrict own_a = a + s * units;
    E* __restrict out = turned + s * units;
    for (int64_t i = 0; i < units; ++i) {
      out[i] = unit * (T(left_g[i]) - T(own_g[i]) + decay * (T(left_a[i]) - T(own_a[i])));
    }
  }
}

// A hinge's slope is the difference of the segments' on its right and its left.
template <typename E, typename T = Precise<E>>
void move(E* slopes, const E* before, int64_t hinges, int64_t units, T unit) {
  for (int64_t s = 0; s < hinges; ++s, slopes += units, before += units) {
    E* __restrict a = slopes;
    const E* __restrict old = before;
    if (s + 1 == hinges) {
      for (int64_t i = 0; i < units; ++i) a[i] = T(old[i]) - unit * (T(a[i]) - T(old[i]));
      return;
    }
    const E* __restrict next = slopes + units, * __restrict old_next = before + units;
    for (int64_t i = 0; i < units; ++i) {
      const T right = T(next[i]) - T(old_next[i]), left = T(a[i]) - T(old[i]);
      a[i] = T(old[i]) + unit * (right - left);
    }
  }
}

// Calls function with a number of the type of the tensor's elements.
template <typename Function>
void by_type(const Tensor& tensor, const Function& function) {
  const int32_t dtype = tensor.dtype();
  if (dtype == dtypes()[0]) {
    function(float{});
  } else if (dtype == dtypes()[1]) {
    function(double{});
  } else if (dtype == dtypes()[2]) {
    function(c10::BFloat16{});
  } else {
    function(c10::Half{});
  }
}

// Whether the memory is one hinge after the other, whatever the order of the units.
bool goes_by_hinges(const Tensor& tensor) {
  if (tensor.is_contiguous()) return true;
  const auto found =
      find_geometry(tensor.dim(), tensor.sizes().first, tensor.strides().first, 0, 1);
  return found.dense && found.outer == 1;
}

Tensor contiguous(const Tensor& tensor) {
  Tensor target = empty_contiguous(tensor.sizes(), tensor.dtype());
  copy(tensor, target);
  return target;
}

void check_slope(const Tensor& slope) {
  check_tensor("slope", slope);
  if (slope.dim() == 0) refuse("a slope must have the shape (num_hinges, *unit_shape)");
}

int64_t bytes_of(const Tensor& tensor) {
  return tensor.numel() * static_cast<int64_t>(aoti_torch_dtype_element_size(tensor.dtype()));
}

// All slopes lie in one piece of memory, each from the start of a cache line on.
int64_t room_of(const Tensor& slope) { return (bytes_of(slope) + 63) / 64 * 64; }

// The gradient by segment slopes, in the layout of the gradient; the slopes are copied on the way.
Tensor turned_gradient(const Tensor& grad, const Tensor& slope, double unit, double decay,
                       void* before) {
  Tensor turned = empty_like(grad);
  if (slope.numel() == 0) return turned;
  const bool in_order = goes_by_hinges(slope);
  const bool direct = in_order && same_layout(grad, slope) && same_layout(grad, turned);
  const Tensor a = in_order ? slope.share() : contiguous(slope);
  std::memcpy(before, a.data(), bytes_of(slope));
  const Tensor g = direct ? grad.share() : contiguous(grad);
  const Tensor b = direct ? a.share() : contiguous(slope);
  const Tensor out = direct ? turned.share() : empty_contiguous(grad.sizes(), grad.dtype());
  const int64_t hinges = slope.sizes()[0], units = slope.numel() / hinges;
  by_type(slope, [&](auto type) {
    using E = decltype(type);
    turn<E>(static_cast<const E*>(g.data()), static_cast<const E*>(b.data()),
            static_cast<E*>(out.mutable_data()), hinges, units, unit, decay);
  });
  if (!direct) copy(out, turned);
  return turned;
}

void move_slope(const Tensor& slope, const void* before, double unit) {
  if (slope.numel() == 0) return;
  const bool in_order = goes_by_hinges(slope);
  const Tensor a = in_order ? slope.share() : contiguous(slope);
  const int64_t hinges = slope.sizes()[0], units = slope.numel() / hinges;
  by_type(slope, [&](auto type) {
    using E = decltype(type);
    move<E>(static_cast<E*>(a.mutable_data()), static_cast<const E*>(before), hinges, units, unit);
  });
  if (!in_order) copy(a, slope);
}

}  // namespace

void boxed_segment_gradients(StableIValue* stack, uint64_t, uint64_t) {
  const Tensors grads = tensors_at(stack, 0), slopes = tensors_at(stack, 1);
  const double unit = number_at(stack, 2), decay = number_at(stack, 3);
  if (grads.size() != slopes.size()) refuse("there must be one gradient for every slope");
  int64_t room = 0;
  for (size_t k = 0; k < slopes.size(); ++k) {
    check_slope(slopes[k]);
    check_tensor("grad", grads[k]);
    if (!(grads[k].sizes() == slopes[k].sizes()) || grads[k].dtype() != slopes[k].dtype()) {
      refuse("a gradient must have the shape and dtype of its slope");
    }
    room += room_of(slopes[k]);
  }
  Tensor before = empty_contiguous({&room, 1}, aoti_torch_dtype_uint8());
  auto* place = static_cast<unsigned char*>(before.mutable_data());
  Tensors turned;
  turned.reserve(slopes.size());
  for (size_t k = 0; k < slopes.size(); ++k) {
    turned.push_back(turned_gradient(grads[k], slopes[k], unit, decay, place));
    place += room_of(slopes[k]);
  }
  stack[0] = list_of(std::move(turned));
  stack[1] = given_away(std::move(before));
}

void boxed_segment_step(StableIValue* stack, uint64_t, uint64_t) {
  const Tensors slopes = tensors_at(stack, 0);
  const Tensor before = tensor_at(stack, 1);
  const double unit = number_at(stack, 2);
  int64_t room = 0;
  for (const Tensor& slope : slopes) {
    check_slope(slope);
    room += room_of(slope);
  }
  if (!before.is_cpu() || !before.is_contiguous() || before.dtype() != aoti_torch_dtype_uint8() ||
      before.numel() != room) {
    refuse("before must be what segment_gradients has returned for these slopes");
  }
  const auto* place = static_cast<const unsigned char*>(before.data());
  for (const Tensor& slope : slopes) {
    move_slope(slope, place, unit);
    place += room_of(slope);
  }
}

}  // namespace torchapl
