// Reverse mode of torchapl::apl as an autograd node of its own: no Python runs between a forward and its
// backward, and torch.func, which refuses torch::autograd::Function, takes it like a built-in operator.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include "operator.h"

namespace torchapl {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

using Forward = at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t);
using Backward = std::tuple<at::Tensor, at::Tensor, at::Tensor>(
    const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t,
    std::array<bool, 3>);

const c10::TypedOperatorHandle<Forward>& forward_operator() {
  static const auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow("torchapl::apl", "").typed<Forward>();
  return handle;
}

const c10::TypedOperatorHandle<Backward>& backward_operator() {
  static const auto handle =
      c10::Dispatcher::singleton().findSchemaOrThrow("torchapl::apl_backward", "").typed<Backward>();
  return handle;
}

struct AplBackward : public torch::autograd::Node {
  SavedVariable input, slope, offset;
  int64_t unit_dim = 0;

  std::string name() const override { return "AplBackward"; }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    input.reset_data();
    slope.reset_data();
    offset.reset_data();
  }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list results(3);
    const at::Tensor& grad = grads[0];
    if (!grad.defined()) return results;
    const std::array<bool, 3> mask = {task_should_compute_output(0), task_should_compute_output(1),
                                      task_should_compute_output(2)};
    const auto x = input.unpack(), a = slope.unpack(), b = offset.unpack();
    std::tuple<at::Tensor, at::Tensor, at::Tensor> computed;
    if (at::GradMode::is_enabled()) {
      // create_graph=True: torchapl::apl_backward has a derivative of its own.
      computed = backward_operator().call(grad, x, a, b, unit_dim, mask);
    } else {
      at::AutoDispatchBelowADInplaceOrView guard;
      computed = backward_operator().call(grad, x, a, b, unit_dim, mask);
    }
    if (mask[0]) results[0] = std::move(std::get<0>(computed));
    if (mask[1]) results[1] = std::move(std::get<1>(computed));
    if (mask[2]) results[2] = std::move(std::get<2>(computed));
    return results;
  }
};

}  // namespace

at::Tensor apl_autograd(c10::DispatchKeySet keys, const at::Tensor& input, const at::Tensor& slope,
                        const at::Tensor& offset, int64_t unit_dim) {
  using namespace torch::autograd;
  TORCH_CHECK_NOT_IMPLEMENTED(
      !isFwGradDefined(input) && !isFwGradDefined(slope) && !isFwGradDefined(offset),
      "the operator torchapl::apl has no forward-mode derivative; torchapl.apl() has");
  decltype(Edge::function) node;
  if (compute_requires_grad(input, slope, offset)) {
    auto created = c10::make_intrusive<AplBackward>();
    created->set_next_edges(collect_next_edges(input, slope, offset));
    created->input = SavedVariable(input, false);
    created->slope = SavedVariable(slope, false);
    created->offset = SavedVariable(offset, false);
    created->unit_dim = unit_dim;
    node = std::move(created);
  }
  at::Tensor output = [&] {
    at::AutoDispatchBelowADInplaceOrView guard;
    return forward_operator().redispatch(keys & c10::after_autograd_keyset, input, slope, offset,
                                         unit_dim);
  }();
  if (node) set_history(output, node);
  return output;
}

namespace {

// Never destroyed: the kernels serve until the process ends.
torch::Library& library(c10::DispatchKey key) {
  return *new torch::Library(torch::Library::IMPL, "torchapl", key, __FILE__, __LINE__);
}

}  // namespace

void register_kernels() {
  library(c10::DispatchKey::CPU)
      .impl("apl", apl)
      .impl("apl_backward", apl_backward);
  library(c10::DispatchKey::AutogradCPU).impl("apl", apl_autograd);
  library(c10::DispatchKey::AutogradCUDA).impl("apl", apl_autograd);
}

}  // namespace torchapl
