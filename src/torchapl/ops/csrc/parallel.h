// Tasks on torch's threads.
#pragma once

#include <torch/csrc/stable/c/shim.h>

#include <cstdint>
#include <stdexcept>

namespace torchapl {

// Runs on torch's own threads: this function lives in libtorch, so that no second OpenMP runtime
// and no OpenMP flag of the compiler is needed. `alone`: one after the other on this thread.
template <typename Function>
void parallel(int64_t tasks, bool alone, const Function& function) {
  if (tasks == 1 || alone) {
    for (int64_t task = 0; task < tasks; ++task) function(task);
    return;
  }
  const auto callback = [](int64_t begin, int64_t end, void* context) {
    for (int64_t task = begin; task < end; ++task) (*static_cast<const Function*>(context))(task);
  };
  void* context = const_cast<void*>(static_cast<const void*>(&function));
  if (torch_parallel_for(0, tasks, 1, callback, context) != 0) {
    throw std::runtime_error("torchapl: torch's parallel_for failed");
  }
}

}  // namespace torchapl
