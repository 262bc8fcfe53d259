// The operators on CPU tensors, below autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <string>
#include <tuple>
#include <vector>

namespace torchapl {

at::Tensor apl(const at::Tensor& input, const at::Tensor& slope, const at::Tensor& offset,
               int64_t unit_dim);

std::tuple<at::Tensor, at::Tensor, at::Tensor> apl_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& slope,
    const at::Tensor& offset, int64_t unit_dim, std::array<bool, 3> output_mask);

// Registers these two as the CPU's kernels, and the autograd of torchapl::apl for CPU and CUDA.
void register_kernels();

// Instruction sets that this machine can run, the fastest last, and the one in use.
std::vector<std::string> capabilities();
std::string capability();
void set_capability(const std::string& name);

}  // namespace torchapl
