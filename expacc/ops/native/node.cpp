// The autograd node of a fused loss, without Python: what a step of a small batch costs.
//
// A plan (softmax_plan.py, exact_plan.py) describes one kind of batch: layouts, buffers, and the
// compiled kernels of forward and backward with their arguments in place. `Plan.run` launches them for
// a batch of that kind on the default stream and says None to any other, which Python then handles;
// so does the plan's `fallback` a backward of another kind. Neither CUDA's headers nor its libraries
// are needed: the driver's functions are handed over as addresses.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using at::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// The buffers of a step, in the order of launch.py.
enum Slot { LOGITS, TARGET, VALUES, ROWS, SCRATCH, DOTS, UPSTREAM, GRADIENT, SLOTS };

// CUDA's driver: cuLaunchKernel; and cuCtxGetCurrent and cuCtxSetCurrent, with the context for
// threads that have none yet.
struct Driver {
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**, void**);
  int (*get_context)(void**);
  int (*set_context)(void*);
  void* context;

  void enter() const {
    void* current = nullptr;
    if (context != nullptr && (get_context(&current) != 0 || current == nullptr)) {
      set_context(context);
    }
  }
};

constexpr int64_t DEFAULT_STREAM = 0;
constexpr size_t MOST_ARGUMENTS = 48;
constexpr size_t MOST_SPARE = 4;
constexpr int64_t LARGEST_SPARE = 1 << 17;  // numbers

struct Argument {
  char kind;      // 's' a slot's address, 'f' or 'd' a number, 'c' these bits
  int which;      // slot or number
  uint64_t bits;  // of a constant, as the kernel reads them
};

struct Kernel {
  void* function;
  unsigned programs, threads, shared;
  std::vector<Argument> arguments;
};

// The keys by which torch tells an ordinary tensor from a wrapped or traced one.
bool is_plain(const Tensor& tensor, c10::DispatchKeySet keys) {
  return tensor.defined() && tensor.key_set() == keys;
}

struct Plan {
  c10::Device device = c10::Device(c10::DeviceType::CPU);
  c10::DispatchKeySet keys;
  at::ScalarType dtype{}, result_dtype{}, upstream_dtype{};
  bool autocast = false;
  int64_t count = 0, classes = 0, row_stride = 0, class_stride = 0, target_stride = 0;
  int64_t place = 0;  // of the addresses, modulo 16
  int64_t ignore_index = 0;
  std::string reduction;
  bool reduced = false;
  int64_t upstream_stride = 0;
  int64_t scratch_size = 0, dots_size = 0, rows_size = 0;
  bool rows_in_gradient = false;  // one buffer for both: backward spends it
  Driver driver{};
  std::vector<Kernel> forward, backward;
  PyObject* fallback = nullptr;
  PyObject* keep = nullptr;  // tensors whose addresses are among the constants

  // Small scratch that a step no longer needs is the next one's: launches of the default stream
  // follow each other.
  mutable std::mutex spare_mutex;
  mutable std::vector<Tensor> spare;

  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    if (!Py_IsInitialized()) return;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_XDECREF(fallback);
    Py_XDECREF(keep);
    PyGILState_Release(state);
  }

  bool suits(const Tensor& logits, const Tensor& target) const {
    if (logits.dim() != 2 || target.dim() != 1) return false;
    if (!is_plain(logits, keys) || !is_plain(target, keys)) return false;
    const auto address = reinterpret_cast<uintptr_t>(logits.const_data_ptr()) |
                         reinterpret_cast<uintptr_t>(target.const_data_ptr());
    return logits.size(0) == count && logits.size(1) == classes && target.size(0) == count &&
           logits.scalar_type() == dtype && target.scalar_type() == at::kLong &&
           logits.stride(0) == row_stride && logits.stride(1) == class_stride &&
           target.stride(0) == target_stride && logits.device() == device &&
           target.device() == device && static_cast<int64_t>(address & 15) == place &&
           (dtype == at::kFloat || at::autocast::is_autocast_enabled(at::kCUDA) == autocast);
  }

  bool suits_upstream(const Tensor& upstream) const {
    return is_plain(upstream, keys) && upstream.scalar_type() == upstream_dtype &&
           upstream.device() == device &&
           (reduced ? upstream.dim() == 0
                    : upstream.dim() == 1 && upstream.size(0) == count &&
                          upstream.stride(0) == upstream_stride);
  }

  bool on_default_stream() const {
    const c10::impl::VirtualGuardImpl guard(device.type());
    return guard.getDevice() == device && guard.getStream(device).id() == DEFAULT_STREAM;
  }

  Tensor vector(int64_t size, at::ScalarType type) const {
    return at::empty({size}, at::TensorOptions().dtype(type).device(device));
  }

  Tensor gradient() const {
    return at::empty({count, classes}, at::TensorOptions().dtype(dtype).device(device));
  }

  Tensor new_scratch() const {
    {
      std::lock_guard<std::mutex> lock(spare_mutex);
      if (!spare.empty()) {
        Tensor found = std::move(spare.back());
        spare.pop_back();
        return found;
      }
    }
    return vector(scratch_size, at::kDouble);
  }

  void spend(Tensor&& scratch) const {
    if (!scratch.defined() || scratch_size > LARGEST_SPARE) return;
    std::lock_guard<std::mutex> lock(spare_mutex);
    if (spare.size() < MOST_SPARE) spare.push_back(std::move(scratch));
  }

  void launch(const std::vector<Kernel>& kernels, void* const* slots, const double* numbers) const {
    uint64_t cells[MOST_ARGUMENTS];
    void* places[MOST_ARGUMENTS];
    driver.enter();
    for (const Kernel& kernel : kernels) {
      size_t n = 0;
      for (const Argument& argument : kernel.arguments) {
        uint64_t& cell = cells[n];
        if (argument.kind == 's') {
          cell = reinterpret_cast<uint64_t>(slots[argument.which]);
        } else if (argument.kind == 'f') {
          const auto number = static_cast<float>(numbers[argument.which]);
          std::memcpy(&cell, &number, sizeof number);
        } else if (argument.kind == 'd') {
          std::memcpy(&cell, &numbers[argument.which], sizeof(double));
        } else {
          cell = argument.bits;
        }
        places[n++] = &cell;
      }
      const int code = driver.launch(kernel.function, kernel.programs, 1, 1, kernel.threads, 1, 1,
                                     kernel.shared, nullptr, places, nullptr);
      TORCH_CHECK(code == 0, "CUDA refused to launch a kernel of expacc; got error ", code, ".");
    }
  }
};

// ------------------------------------------------------------------------------------ the node

struct FusedLossBackward : torch::autograd::Node {
  std::shared_ptr<const Plan> plan;
  SavedVariable logits, target;
  Tensor rows, scratch, dots;
  double numbers[2] = {0, 0};

  std::string name() const override { return "FusedLossBackward"; }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    logits.reset_data();
    target.reset_data();
    rows.reset();
    dots.reset();
    plan->spend(std::move(scratch));
    scratch.reset();
  }

  variable_list apply(variable_list&& upstreams) override {
    std::lock_guard<std::mutex> lock(mutex_);
    const Tensor& upstream = upstreams[0];
    if (!upstream.defined() || !task_should_compute_output(0)) return {Tensor()};
    const Tensor scores = logits.unpack(), labels = target.unpack();
    const bool intact = scratch.defined() && (rows.defined() || !plan->rows_in_gradient);
    if (!intact || c10::GradMode::is_enabled() || !plan->suits_upstream(upstream) ||
        !plan->on_default_stream()) {
      return {in_python(scores, labels, upstream)};
    }
    Tensor gradient = plan->rows_in_gradient ? std::move(rows) : plan->gradient();
    void* slots[SLOTS] = {};
    slots[LOGITS] = const_cast<void*>(scores.const_data_ptr());
    slots[TARGET] = const_cast<void*>(labels.const_data_ptr());
    slots[SCRATCH] = scratch.data_ptr();
    slots[DOTS] = dots.defined() ? dots.data_ptr() : slots[SCRATCH];
    slots[UPSTREAM] = const_cast<void*>(upstream.const_data_ptr());
    slots[GRADIENT] = gradient.data_ptr();
    slots[ROWS] = rows.defined() ? rows.data_ptr() : slots[GRADIENT];
    plan->launch(plan->backward, slots, numbers);
    return {std::move(gradient)};
  }

  Tensor in_python(const Tensor& scores, const Tensor& labels, const Tensor& upstream) const {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject* arguments =
        Py_BuildValue("NNNdd", THPVariable_Wrap(scores), THPVariable_Wrap(labels),
                      THPVariable_Wrap(upstream), numbers[0], numbers[1]);
    PyObject* found = arguments ? PyObject_CallObject(plan->fallback, arguments) : nullptr;
    Py_XDECREF(arguments);
    if (found == nullptr) {
      python_error error;
      error.persist();
      PyGILState_Release(state);
      throw std::move(error);
    }
    Tensor gradient = THPVariable_Unpack(found);
    Py_DECREF(found);
    PyGILState_Release(state);
    return gradient;
  }
};

// Torch 2.11 counts a node's owners beside it, newer ones inside it.
using NodePointer = decltype(torch::autograd::Edge::function);

template <class Made, class Pointer = NodePointer>
Pointer new_node(Made*& node) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>) {
    auto made = std::make_shared<Made>();
    node = made.get();
    return made;
  } else {
    auto made = c10::make_intrusive<Made>();
    node = made.get();
    return made;
  }
}

// A launched step, or an undefined tensor if the plan is not for this batch.
Tensor step(const std::shared_ptr<const Plan>& plan, const Tensor& logits, const Tensor& target,
            double first, double second) {
  if (!plan->suits(logits, target) || !plan->on_default_stream()) return {};
  Tensor values = plan->reduced
                      ? at::empty({}, at::TensorOptions().dtype(plan->result_dtype).device(plan->device))
                      : plan->vector(plan->count, plan->result_dtype);
  Tensor scratch = plan->new_scratch();
  Tensor rows, dots;
  if (plan->rows_in_gradient) {
    rows = plan->gradient();
  } else if (plan->rows_size > 0) {
    rows = plan->vector(plan->rows_size, at::kFloat);
  }
  if (plan->dots_size > 0) dots = plan->vector(plan->dots_size, at::kDouble);
  const double numbers[2] = {first, second};
  void* slots[SLOTS] = {};
  slots[LOGITS] = const_cast<void*>(logits.const_data_ptr());
  slots[TARGET] = const_cast<void*>(target.const_data_ptr());
  slots[VALUES] = values.data_ptr();
  slots[SCRATCH] = scratch.data_ptr();
  slots[DOTS] = dots.defined() ? dots.data_ptr() : slots[SCRATCH];
  slots[ROWS] = rows.defined() ? rows.data_ptr() : slots[SCRATCH];
  plan->launch(plan->forward, slots, numbers);
  if (c10::GradMode::is_enabled() && logits.requires_grad()) {
    FusedLossBackward* node = nullptr;
    const NodePointer owner = new_node(node);
    node->set_next_edges(torch::autograd::collect_next_edges(logits));
    node->plan = plan;
    node->logits = SavedVariable(logits, false);
    node->target = SavedVariable(target, false);
    node->rows = std::move(rows);
    node->scratch = std::move(scratch);
    node->dots = std::move(dots);
    node->numbers[0] = first;
    node->numbers[1] = second;
    torch::autograd::set_history(values, owner);
  }
  return values;
}

// ------------------------------------------------------------------------------ what Python sees

struct PyPlan {
  PyObject_HEAD
  std::shared_ptr<const Plan> plan;
};

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  reinterpret_cast<PyPlan*>(self)->plan.~shared_ptr();
  type->tp_free(self);
  Py_DECREF(type);
}

// run(logits, target, ignore_index, reduction, first, second)
PyObject* run(PyObject* self, PyObject* const* arguments, Py_ssize_t n) {
  HANDLE_TH_ERRORS
  const auto& plan = reinterpret_cast<PyPlan*>(self)->plan;
  if (n != 6) {
    PyErr_SetString(PyExc_TypeError, "run() takes 6 arguments");
    return nullptr;
  }
  PyObject *logits = arguments[0], *target = arguments[1], *reduction = arguments[3];
  if (!THPVariable_CheckExact(logits) || !THPVariable_CheckExact(target)) Py_RETURN_NONE;
  if (!PyLong_CheckExact(arguments[2]) || !PyUnicode_Check(reduction)) Py_RETURN_NONE;
  int overflow = 0;
  if (PyLong_AsLongLongAndOverflow(arguments[2], &overflow) != plan->ignore_index || overflow) {
    Py_RETURN_NONE;
  }
  if (PyUnicode_CompareWithASCIIString(reduction, plan->reduction.c_str()) != 0) Py_RETURN_NONE;
  const double first = PyFloat_AsDouble(arguments[4]), second = PyFloat_AsDouble(arguments[5]);
  if (PyErr_Occurred()) return nullptr;
  Tensor values = step(plan, THPVariable_Unpack(logits), THPVariable_Unpack(target), first, second);
  if (!values.defined()) Py_RETURN_NONE;
  return THPVariable_Wrap(std::move(values));
  END_HANDLE_TH_ERRORS
}

PyMethodDef plan_methods[] = {
    {"run", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run)), METH_FASTCALL,
     "run(logits, target, ignore_index, reduction, first, second): the loss, or None."},
    {nullptr, nullptr, 0, nullptr}};
PyType_Slot plan_slots[] = {{Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                            {Py_tp_methods, plan_methods},
                            {0, nullptr}};
PyType_Spec plan_spec = {"expacc_native.Plan", sizeof(PyPlan), 0,
                         Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, plan_slots};
PyTypeObject* plan_type = nullptr;

// A list of (function, programs, threads, shared, [(kind, which, bits), …]); false on an error.
bool read_kernels(PyObject* list, std::vector<Kernel>& kernels) {
  for (Py_ssize_t n = 0; n < PyList_Size(list); ++n) {
    Kernel kernel{};
    unsigned long long function = 0;
    PyObject* arguments = nullptr;
    if (!PyArg_ParseTuple(PyList_GetItem(list, n), "KIIIO!", &function, &kernel.programs,
                          &kernel.threads, &kernel.shared, &PyList_Type, &arguments)) {
      return false;
    }
    kernel.function = reinterpret_cast<void*>(function);
    for (Py_ssize_t m = 0; m < PyList_Size(arguments); ++m) {
      Argument argument{};
      int kind = 0;
      unsigned long long bits = 0;
      if (!PyArg_ParseTuple(PyList_GetItem(arguments, m), "CiK", &kind, &argument.which, &bits)) {
        return false;
      }
      argument.kind = static_cast<char>(kind);
      argument.bits = bits;
      kernel.arguments.push_back(argument);
    }
    if (kernel.arguments.size() > MOST_ARGUMENTS) {
      PyErr_SetString(PyExc_ValueError, "a kernel has too many arguments");
      return false;
    }
    kernels.push_back(std::move(kernel));
  }
  return true;
}

// make(logits, target, values, upstream, ignore_index, reduction, (scratch, dots, rows sizes),
//      rows_in_gradient, driver, forward, backward, fallback, keep): a plan for batches like these.
PyObject* make(PyObject*, PyObject* arguments) {
  HANDLE_TH_ERRORS
  PyObject *logits, *target, *values, *upstream, *forward, *backward, *fallback, *keep;
  const char* reduction = nullptr;
  long long ignore_index = 0, scratch_size = 0, dots_size = 0, rows_size = 0;
  unsigned long long launch = 0, get_context = 0, set_context = 0, context = 0;
  int rows_in_gradient = 0;
  if (!PyArg_ParseTuple(arguments, "OOOOLs(LLL)p(KKKK)O!O!OO", &logits, &target, &values, &upstream,
                        &ignore_index, &reduction, &scratch_size, &dots_size, &rows_size,
                        &rows_in_gradient, &launch, &get_context, &set_context, &context,
                        &PyList_Type, &forward, &PyList_Type, &backward, &fallback, &keep)) {
    return nullptr;
  }
  const Tensor scores = THPVariable_Unpack(logits), labels = THPVariable_Unpack(target);
  const Tensor above = THPVariable_Unpack(upstream);
  auto plan = std::make_shared<Plan>();
  plan->device = scores.device();
  plan->keys = labels.key_set();
  plan->dtype = scores.scalar_type();
  plan->result_dtype = THPVariable_Unpack(values).scalar_type();
  plan->autocast = at::autocast::is_autocast_enabled(at::kCUDA);
  plan->count = scores.size(0);
  plan->classes = scores.size(1);
  plan->row_stride = scores.stride(0);
  plan->class_stride = scores.stride(1);
  plan->target_stride = labels.stride(0);
  plan->place = static_cast<int64_t>((reinterpret_cast<uintptr_t>(scores.const_data_ptr()) |
                                      reinterpret_cast<uintptr_t>(labels.const_data_ptr())) &
                                     15);
  plan->ignore_index = ignore_index;
  plan->reduction = reduction;
  plan->reduced = THPVariable_Unpack(values).dim() == 0;
  plan->upstream_dtype = above.scalar_type();
  plan->upstream_stride = above.dim() == 0 ? 0 : above.stride(0);
  plan->scratch_size = scratch_size;
  plan->dots_size = dots_size;
  plan->rows_size = rows_size;
  plan->rows_in_gradient = rows_in_gradient != 0;
  plan->driver.launch = reinterpret_cast<decltype(Driver::launch)>(launch);
  plan->driver.get_context = reinterpret_cast<decltype(Driver::get_context)>(get_context);
  plan->driver.set_context = reinterpret_cast<decltype(Driver::set_context)>(set_context);
  plan->driver.context = reinterpret_cast<void*>(context);
  if (!read_kernels(forward, plan->forward) || !read_kernels(backward, plan->backward)) return nullptr;
  plan->fallback = Py_NewRef(fallback);
  plan->keep = Py_NewRef(keep);
  auto* made = reinterpret_cast<PyPlan*>(plan_type->tp_alloc(plan_type, 0));
  if (made == nullptr) return nullptr;
  new (&made->plan) std::shared_ptr<const Plan>(std::move(plan));
  return reinterpret_cast<PyObject*>(made);
  END_HANDLE_TH_ERRORS
}

PyMethodDef methods[] = {{"make", make, METH_VARARGS, "A plan for batches like these."},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "expacc_native", nullptr, -1, methods,
                      nullptr,               nullptr,         nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_expacc_native() {
  plan_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&plan_spec));
  if (plan_type == nullptr) return nullptr;
  return PyModule_Create(&module);
}
