// The Python module torchapl.ops._C, in Python's limited API: importing it registers the kernels
// with torch.
#include <Python.h>

#include <exception>
#include <string>
#include <vector>

#include "cache.h"
#include "geometry.h"
#include "kernels.h"
#include "operator.h"

namespace {

// Runs a function of Python's; what it throws becomes a Python exception of the given type.
template <typename Function>
PyObject* guarded(PyObject* type, const Function& function) {
  try {
    return function();
  } catch (const std::exception& error) {
    PyErr_SetString(type, error.what());
    return nullptr;
  }
}

PyObject* capability(PyObject*, PyObject*) {
  return PyUnicode_FromString(torchapl::capability().c_str());
}

PyObject* capabilities(PyObject*, PyObject*) {
  const std::vector<std::string> names = torchapl::capabilities();
  PyObject* list = PyList_New(0);
  for (const std::string& name : names) {
    PyObject* text = PyUnicode_FromString(name.c_str());
    PyList_Append(list, text);
    Py_DECREF(text);
  }
  return list;
}

PyObject* set_capability(PyObject*, PyObject* arguments) {
  const char* name = nullptr;
  if (!PyArg_ParseTuple(arguments, "s", &name)) return nullptr;
  return guarded(PyExc_ValueError, [&] {
    torchapl::set_capability(name);
    Py_RETURN_NONE;
  });
}

std::vector<int64_t> numbers(PyObject* sequence) {
  std::vector<int64_t> values(PyTuple_Size(sequence));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = PyLong_AsLongLong(PyTuple_GetItem(sequence, static_cast<Py_ssize_t>(i)));
  }
  return values;
}

PyObject* geometry(PyObject*, PyObject* arguments) {
  PyObject *sizes = nullptr, *strides = nullptr;
  long long unit_dim = 0, unit_dims = 0;
  if (!PyArg_ParseTuple(arguments, "O!O!LL", &PyTuple_Type, &sizes, &PyTuple_Type, &strides,
                        &unit_dim, &unit_dims)) {
    return nullptr;
  }
  const auto found = torchapl::find_geometry(PyTuple_Size(sizes), numbers(sizes).data(),
                                             numbers(strides).data(), unit_dim, unit_dims);
  PyObject* order = PyList_New(0);
  for (const int64_t axis : found.unit_order) {
    PyObject* number = PyLong_FromLongLong(axis);
    PyList_Append(order, number);
    Py_DECREF(number);
  }
  return Py_BuildValue("LLLNN", static_cast<long long>(found.outer),
                       static_cast<long long>(found.units), static_cast<long long>(found.inner),
                       PyBool_FromLong(found.direct), order);
}

PyObject* tasks(PyObject*, PyObject* arguments) {
  long long outer = 0, units = 0, inner = 0, hinges = 0;
  if (!PyArg_ParseTuple(arguments, "LLLL", &outer, &units, &inner, &hinges)) return nullptr;
  return PyLong_FromLongLong(torchapl::tasks(outer, units, inner, hinges));
}

PyObject* past_from(PyObject*, PyObject*) { return PyLong_FromLongLong(torchapl::past_from()); }

PyObject* set_past_from(PyObject*, PyObject* arguments) {
  long long bytes = 0;
  if (!PyArg_ParseTuple(arguments, "L", &bytes)) return nullptr;
  torchapl::set_past_from(bytes);
  Py_RETURN_NONE;
}

PyMethodDef functions[] = {
    {"capability", capability, METH_NOARGS, nullptr},
    // For tests and measurements; the library never calls these.
    {"capabilities", capabilities, METH_NOARGS, nullptr},
    {"set_capability", set_capability, METH_VARARGS, nullptr},
    {"geometry", geometry, METH_VARARGS, nullptr},
    {"tasks", tasks, METH_VARARGS, nullptr},
    {"past_from", past_from, METH_NOARGS, nullptr},
    {"set_past_from", set_past_from, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_C", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__C() {
  return guarded(PyExc_ImportError, [] {
    torchapl::register_kernels();
    return PyModule_Create(&definition);
  });
}
