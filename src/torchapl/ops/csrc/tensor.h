// Tensors through torch's stable C interface, as torch 2.10 has it.
//
// Not torch/csrc/stable/tensor.h: its shared_ptr and its string streams would bind the binary to
// glibc 2.32 and to the C++ library of GCC 9, both newer than what torch's own wheels ask for.
#pragma once

#include <torch/csrc/stable/c/shim.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace torchapl {

// What torch itself has to say about a failure, it has written to stderr.
inline void expect(AOTITorchError error, const char* action) {
  if (error != 0) throw std::runtime_error(std::string("torchapl: torch failed to ") + action);
}

// Sizes or strides of a tensor, where the tensor keeps them.
struct Extents {
  const int64_t* first;
  int64_t dims;

  const int64_t* begin() const { return first; }
  const int64_t* end() const { return first + dims; }
  int64_t operator[](int64_t d) const { return first[d]; }
  bool operator==(const Extents& other) const {
    return std::equal(begin(), end(), other.begin(), other.end());
  }
};

// Owns one reference to a tensor of torch.
class Tensor {
 public:
  explicit Tensor(AtenTensorHandle handle) : handle_(handle) {}
  Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Tensor() {
    if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);
  }

  AtenTensorHandle get() const { return handle_; }
  AtenTensorHandle release() { return std::exchange(handle_, nullptr); }

  // One more reference to the same tensor.
  Tensor share() const {
    AtenTensorHandle handle = nullptr;
    expect(aoti_torch_new_tensor_handle(handle_, &handle), "share a tensor");
    return Tensor(handle);
  }

  int64_t dim() const {
    int64_t dims = 0;
    expect(aoti_torch_get_dim(handle_, &dims), "count axes");
    return dims;
  }

  int64_t numel() const {
    int64_t count = 0;
    expect(aoti_torch_get_numel(handle_, &count), "count elements");
    return count;
  }

  Extents sizes() const {
    int64_t* first = nullptr;
    expect(aoti_torch_get_sizes(handle_, &first), "read sizes");
    return {first, dim()};
  }

  Extents strides() const {
    int64_t* first = nullptr;
    expect(aoti_torch_get_strides(handle_, &first), "read strides");
    return {first, dim()};
  }

  // In torch's numbering, which is its own affair.
  int32_t dtype() const {
    int32_t code = 0;
    expect(aoti_torch_get_dtype(handle_, &code), "read a dtype");
    return code;
  }

  bool is_cpu() const {
    int32_t type = 0;
    expect(aoti_torch_get_device_type(handle_, &type), "read a device");
    return type == aoti_torch_device_type_cpu();
  }

  bool is_contiguous() const {
    bool result = false;
    expect(aoti_torch_is_contiguous(handle_, &result), "read a layout");
    return result;
  }

  const void* data() const {
    const void* pointer = nullptr;
    expect(torch_get_const_data_ptr(handle_, &pointer), "find the memory of a tensor");
    return pointer;
  }

  void* mutable_data() const {
    void* pointer = nullptr;
    expect(torch_get_mutable_data_ptr(handle_, &pointer), "find the memory of a tensor");
    return pointer;
  }

 private:
  AtenTensorHandle handle_;
};

inline Tensor empty_strided(Extents sizes, const int64_t* strides, int32_t dtype) {
  AtenTensorHandle handle = nullptr;
  expect(aoti_torch_empty_strided(sizes.dims, sizes.first, strides, dtype,
                                  aoti_torch_device_type_cpu(), 0, &handle),
         "allocate a tensor");
  return Tensor(handle);
}

inline Tensor empty_contiguous(Extents sizes, int32_t dtype) {
  std::vector<int64_t> strides(sizes.dims);
  int64_t stride = 1;
  for (int64_t d = sizes.dims; d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(sizes[d], 1);
  }
  return empty_strided(sizes, strides.data(), dtype);
}

inline Tensor empty_like(const Tensor& like) {
  if (like.is_contiguous()) return empty_strided(like.sizes(), like.strides().first, like.dtype());
  // By name, which takes a microsecond: torch knows what becomes of holes and overlaps.
  StableIValue stack[6] = {reinterpret_cast<StableIValue>(like.share().release())};
  expect(torch_call_dispatcher("aten::empty_like", "", stack, TORCH_VERSION_2_10_0),
         "allocate a tensor");
  return Tensor(reinterpret_cast<AtenTensorHandle>(stack[0]));
}

inline Tensor clone(const Tensor& tensor) {
  AtenTensorHandle handle = nullptr;
  expect(aoti_torch_clone(tensor.get(), &handle), "copy a tensor");
  return Tensor(handle);
}

// Values of any layout and dtype.
inline void copy(const Tensor& source, const Tensor& target) {
  expect(aoti_torch_copy_(target.get(), source.get(), 0), "copy a tensor");
}

inline Tensor permuted(const Tensor& tensor, const std::vector<int64_t>& axes) {
  std::vector<int64_t> sizes, strides;
  for (const int64_t axis : axes) {
    sizes.push_back(tensor.sizes()[axis]);
    strides.push_back(tensor.strides()[axis]);
  }
  AtenTensorHandle handle = nullptr;
  expect(aoti_torch_as_strided(tensor.get(), sizes.data(), strides.data(), &handle),
         "permute a tensor");
  return Tensor(handle);
}

// What torch calls the types of elements, in the order of Storage.
inline const std::array<int32_t, 4>& dtypes() {
  static const std::array<int32_t, 4> codes = {
      aoti_torch_dtype_float32(), aoti_torch_dtype_float64(), aoti_torch_dtype_bfloat16(),
      aoti_torch_dtype_float16()};
  return codes;
}

[[noreturn]] inline void refuse(const std::string& reason) {
  throw std::runtime_error("torchapl: " + reason);
}

inline void check_tensor(const char* name, const Tensor& tensor) {
  if (!tensor.is_cpu()) refuse(std::string(name) + " must be on the CPU like the other arguments");
  if (std::find(dtypes().begin(), dtypes().end(), tensor.dtype()) == dtypes().end()) {
    refuse(std::string(name) + " must be float64, float32, bfloat16 or float16");
  }
}

inline bool same_layout(const Tensor& left, const Tensor& right) {
  const Extents sizes = right.sizes(), one = left.strides(), other = right.strides();
  for (int64_t d = 0; d < sizes.dims; ++d) {
    if (sizes[d] != 1 && one[d] != other[d]) return false;
  }
  return left.dtype() == right.dtype();
}

// The stack holds references that are ours to give up, and gets references to results.
inline Tensor tensor_at(StableIValue* stack, int64_t i) {
  return Tensor(reinterpret_cast<AtenTensorHandle>(stack[i]));
}

inline StableIValue given_away(Tensor tensor) {
  return reinterpret_cast<StableIValue>(tensor.release());
}

}  // namespace torchapl
