// The operators on CPU tensors, below autograd, on torch's stable ABI.
#pragma once

#include <string>
#include <vector>

#include "primitives.h"

namespace torchapl {

// Makes these and those of curve.h and segments.h the CPU's kernels of the operators of torchapl.
void register_kernels();

// Instruction sets that this machine can run, the fastest last, and the one in use.
std::vector<std::string> capabilities();
std::string capability();
const Capability& current_capability();
// Throws std::invalid_argument for the name of another one.
void set_capability(const std::string& name);

}  // namespace torchapl
