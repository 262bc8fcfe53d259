// The Python module torchapl.ops._autograd: importing it registers reverse mode as autograd nodes
// of their own, so that no Python runs between a forward and its backward. It needs torch's
// internals, hence the very torch it was built for; without it, autograd.py serves.
#include <Python.h>

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/dynamo/compiled_autograd.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/library.h>

#include <algorithm>
#include <exception>
#include <stdexcept>
#include <string>

namespace {

using at::Tensor;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using torch::dynamo::autograd::CompiledNodeArgs;
using torch::dynamo::autograd::SwapSavedVariables;

using Mask = std::array<bool, 3>;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using Optional = std::optional<Tensor>;
using Forward = Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t);
using Backward = Three(const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t, Mask);
using Double = Four(const Optional&, const Optional&, const Optional&, const Tensor&, const Tensor&,
                    const Tensor&, const Tensor&, int64_t);

template <typename Signature>
c10::TypedOperatorHandle<Signature> find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

const auto& forward_operator() {
  static const auto handle = find<Forward>("torchapl::apl");
  return handle;
}

const auto& backward_operator() {
  static const auto handle = find<Backward>("torchapl::apl_backward");
  return handle;
}

const auto& double_backward_operator() {
  static const auto handle = find<Double>("torchapl::apl_double_backward");
  return handle;
}

// What both nodes have in common: tensors kept for the backward pass, given up after it.
template <size_t Count>
struct SavingNode : public Node {
  std::array<SavedVariable, Count> saved;
  int64_t unit_dim = 0;

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (SavedVariable& variable : saved) variable.reset_data();
  }

  std::array<Tensor, Count> unpack() const {
    std::array<Tensor, Count> tensors;
    for (size_t i = 0; i < Count; ++i) tensors[i] = saved[i].unpack();
    return tensors;
  }

  // Drops what the engine has no use for.
  template <typename Results>
  variable_list wanted(Results&& results) const {
    variable_list list = std::apply(
        [](auto&&... tensors) { return variable_list{std::move(tensors)...}; }, std::move(results));
    for (size_t i = 0; i < list.size(); ++i) {
      if (!task_should_compute_output(i)) list[i].reset();
    }
    return list;
  }
};

struct AplBackward : public SavingNode<3> {
  std::string name() const override { return "AplBackward"; }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!grads[0].defined()) return variable_list(3);
    const Mask mask = {task_should_compute_output(0), task_should_compute_output(1),
                       task_should_compute_output(2)};
    const auto [x, a, b] = unpack();
    if (at::GradMode::is_enabled()) {
      // create_graph=True: the backward operator has a derivative of its own.
      return wanted(backward_operator().call(grads[0], x, a, b, unit_dim, mask));
    }
    at::AutoDispatchBelowADInplaceOrView guard;
    return wanted(backward_operator().call(grads[0], x, a, b, unit_dim, mask));
  }

  // Compiled autograd: what it has to guard on, and the backward as a function that it can trace.
  void compiled_args(CompiledNodeArgs& args) const override {
    args.collect(name());
    for (const SavedVariable& variable : saved) args.collect(variable, false);
    args.collect(unit_dim);
  }

  variable_list apply_with_saved(const variable_list& grads, SwapSavedVariables& swap) override {
    using namespace torch::dynamo::autograd;
    for (SavedVariable& variable : saved) swap.before(variable);
    PackedArgs packed;
    for (const Tensor& tensor : unpack()) packed.pack(tensor);
    packed.pack(unit_dim);
    for (size_t i = 0; i < 3; ++i) packed.pack(task_should_compute_output(i));
    std::vector<at::TypePtr> schema;
    for (const at::IValue& value : packed.vec()) {
      schema.push_back(value.isTensor() ? at::TensorType::get() : value.type());
    }
    const auto metadata =
        IValuePacker<std::vector<std::optional<torch::autograd::InputMetadata>>>::pack(
            get_input_metadata(next_edges()));
    const auto& compiler = getPyCompilerInterface();
    const std::string function = compiler->bind_function(swap.get_py_compiler(), name(), functional,
                                                         schema, /*is_custom_function=*/true,
                                                         /*is_traceable=*/true);
    variable_list results = compiler->call_function(swap.get_py_compiler(), "apply_functional",
                                                    function, grads, packed.vec(), metadata);
    for (SavedVariable& variable : saved) swap.after(variable);
    return results;
  }

  static variable_list functional(const variable_list& grads,
                                  const std::vector<at::IValue>& values) {
    torch::dynamo::autograd::PackedArgs packed(values);
    std::array<Tensor, 3> tensors;
    for (Tensor& tensor : tensors) tensor = packed.unpack<Tensor>();
    const auto unit_dim = packed.unpack<int64_t>();
    Mask mask;
    for (bool& wanted : mask) wanted = packed.unpack<bool>();
    if (!grads[0].defined()) return variable_list(3);
    const auto& [x, a, b] = tensors;
    const auto [dx, da, db] = backward_operator().call(grads[0], x, a, b, unit_dim, mask);
    variable_list results = {dx, da, db};
    for (size_t i = 0; i < 3; ++i) {
      if (!mask[i]) results[i].reset();
    }
    return results;
  }
};

struct AplDoubleBackward : public SavingNode<4> {
  Mask mask = {};

  std::string name() const override { return "AplDoubleBackward"; }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    std::array<Optional, 3> given;
    bool any = false;
    for (size_t i = 0; i < 3; ++i) {
      // The empty stand-in of a result nobody asked for has no gradient.
      if (!mask[i] || !grads[i].defined()) continue;
      given[i] = grads[i];
      any = true;
    }
    if (!any) return variable_list(4);
    const auto [grad, x, a, b] = unpack();
    return wanted(
        double_backward_operator().call(given[0], given[1], given[2], grad, x, a, b, unit_dim));
  }
};

// Nodes are counted by intrusive pointers in recent versions of torch, by shared ones before.
template <typename N>
auto make_node() {
  using Pointer = decltype(torch::autograd::Edge::function);
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<Node>>) {
    return std::shared_ptr<N>(new N, [](auto* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<N>();
  }
}

// A node that keeps the tensors, or a null pointer where none of them needs a gradient.
template <typename N, typename... Tensors>
auto node_for(int64_t unit_dim, const Tensors&... tensors) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !(torch::autograd::isFwGradDefined(tensors) || ...),
      "the operator torchapl::apl has no forward-mode derivative; torchapl.apl() has");
  decltype(make_node<N>()) node;
  if (torch::autograd::compute_requires_grad(tensors...)) {
    node = make_node<N>();
    node->set_next_edges(torch::autograd::collect_next_edges(tensors...));
    node->saved = {SavedVariable(tensors, false)...};
    node->unit_dim = unit_dim;
  }
  return node;
}

Tensor apl_autograd(c10::DispatchKeySet keys, const Tensor& input, const Tensor& slope,
                    const Tensor& offset, int64_t unit_dim) {
  const auto node = node_for<AplBackward>(unit_dim, input, slope, offset);
  Tensor output = [&] {
    at::AutoDispatchBelowADInplaceOrView guard;
    return forward_operator().redispatch(keys & c10::after_autograd_keyset, input, slope, offset,
                                         unit_dim);
  }();
  if (node) torch::autograd::set_history(output, node);
  return output;
}

Three apl_backward_autograd(c10::DispatchKeySet keys, const Tensor& grad, const Tensor& input,
                            const Tensor& slope, const Tensor& offset, int64_t unit_dim,
                            Mask mask) {
  const auto node = node_for<AplDoubleBackward>(unit_dim, grad, input, slope, offset);
  Three results = [&] {
    at::AutoDispatchBelowADInplaceOrView guard;
    return backward_operator().redispatch(keys & c10::after_autograd_keyset, grad, input, slope,
                                          offset, unit_dim, mask);
  }();
  if (node) {
    node->mask = mask;
    const auto& [dx, da, db] = results;
    torch::autograd::set_history(std::vector<Tensor>{dx, da, db}, node);
  }
  return results;
}

void register_autograd() {
  for (const auto key : {c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutogradCUDA}) {
    // Never destroyed: it serves until the process ends.
    auto& library =
        *new torch::Library(torch::Library::IMPL, "torchapl", key, "autograd.cpp", __LINE__);
    library.impl("apl", apl_autograd).impl("apl_backward", apl_backward_autograd);
  }
}

std::string running_version() {
  PyObject* torch = PyImport_ImportModule("torch");
  PyObject* version = torch == nullptr ? nullptr : PyObject_GetAttrString(torch, "__version__");
  const char* text = version == nullptr ? nullptr : PyUnicode_AsUTF8AndSize(version, nullptr);
  const std::string found = text == nullptr ? "of no version" : text;
  Py_XDECREF(version);
  Py_XDECREF(torch);
  return found;
}

// Binaries for another version of torch often load, and crash later. Not TORCH_VERSION: that of a
// nightly, 2.14.0.dev20260101, and of a build from source, 2.14.0a0, is 2.14.0.
void check_version() {
  const std::string running = running_version();
  if (running.substr(0, running.find('+')) != TORCHAPL_BUILT_FOR) {
    throw std::runtime_error("it was built for torch " TORCHAPL_BUILT_FOR ", this is torch " +
                             running);
  }
}

// The operator on plain tensors, or NotImplemented: everything out of the ordinary, and whatever is
// refused, is left to functional.py. Through torch.ops the call alone took longer than the kernel.
PyObject* apl_directly(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  PyObject* axis = count == 4 ? arguments[3] : nullptr;
  if (axis == nullptr || !(axis == Py_None || PyLong_CheckExact(axis)) ||
      !std::all_of(arguments, arguments + 3, THPVariable_CheckExact) ||
      at::impl::torch_function_mode_enabled() || c10::impl::TorchDispatchModeTLS::any_modes_set() ||
      torch::jit::tracer::isTracing()) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  const Tensor& input = THPVariable_Unpack(arguments[0]);
  const Tensor& slope = THPVariable_Unpack(arguments[1]);
  const Tensor& offset = THPVariable_Unpack(arguments[2]);
  // An input of three axes without a unit_dim may deserve a warning.
  if ((axis == Py_None && input.dim() == 3) || torch::autograd::isFwGradDefined(input) ||
      torch::autograd::isFwGradDefined(slope) || torch::autograd::isFwGradDefined(offset)) {
    Py_RETURN_NOTIMPLEMENTED;
  }
  const long long unit_dim = axis == Py_None ? 1 : PyLong_AsLongLong(axis);
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    Py_RETURN_NOTIMPLEMENTED;
  }
  try {
    return THPVariable_Wrap([&] {
      const pybind11::gil_scoped_release release;
      return forward_operator().call(input, slope, offset, unit_dim);
    }());
  } catch (const std::exception&) {
    Py_RETURN_NOTIMPLEMENTED;
  }
}

PyMethodDef functions[] = {
    {"apl", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(apl_directly)),
     METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_autograd", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__autograd() {
  try {
    check_version();
    register_autograd();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ImportError, error.what());
    return nullptr;
  }
  return PyModule_Create(&definition);
}
