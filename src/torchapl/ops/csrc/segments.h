// Hinge slopes and segment slopes, for optimisers that move curves by segments: all parameters of a
// group in one call. One by one, the operations cost a small network more than its curves.
#pragma once

#include <torch/csrc/stable/c/shim.h>

#include <cstdint>

namespace torchapl {

// segment_gradients(Tensor[] grads, Tensor[] slopes, float unit, float decay)
//   -> (Tensor[] turned, Tensor before), the latter being bytes for the other operator alone
void boxed_segment_gradients(StableIValue* stack, uint64_t, uint64_t);

// segment_step(Tensor(a!)[] slopes, Tensor before, float unit) -> ()
void boxed_segment_step(StableIValue* stack, uint64_t, uint64_t);

}  // namespace torchapl
