// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/names/optimizer_tensors.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <string_view>

#include "shim/observe/python/names/local_tensor.h"
#include "shim/observe/python/names/python_names.h"
#include "shim/observe/torch/storage_data.h"

namespace nanwatch {
namespace {

// Whether a group's number is a factor of gradients, parameters or state, of torch's optimizers. A
// bound may be infinite, a factor may not.
bool IsFactor(const PythonApi& api, PyObj* group, const PyObj* number) {
  constexpr const char* kFactors[] = {"lr",       "weight_decay", "momentum", "dampening", "betas",
                                      "lr_decay", "lambd",        "rho",      "alpha",     "etas"};
  return std::any_of(std::begin(kFactors), std::end(kFactors), [&](const char* name) {
    return api.PyDict_GetItemString(group, name) == number;
  });
}

// `value`, of a group, or one of it where it is a tuple. Only what is exactly a float: of anything
// else Python would run code of its own to make one.
void ReadNumber(const PythonApi& api, PyObj* group, const PyObj* value, PyObj* number,
                OptimizedTensors* tensors) {
  if (number->type != api.float_type) return;
  const double read = api.PyFloat_AsDouble(number);
  if (std::isfinite(read)) return;
  const bool is_factor = IsFactor(api, group, value);
  tensors->factor_bad |= is_factor;
  tensors->number_bad |= is_factor || std::isnan(read);
}

void ReadAllNumbers(const PythonApi& api, PyObj* group, OptimizedTensors* tensors) {
  PyObj* name = nullptr;
  PyObj* value = nullptr;
  for (ptrdiff_t at = 0; api.PyDict_Next(group, &at, &name, &value) != 0;) {
    ReadNumber(api, group, value, value, tensors);
    if (!api.HasFlag(value, kPyFlagTuple)) continue;
    for (ptrdiff_t i = api.PyTuple_Size(value); i-- > 0;)
      ReadNumber(api, group, value, api.PyTuple_GetItem(value, i), tensors);
  }
}

void ReadNumbers(const PythonApi& api, PyObj* group, bool is_first, OptimizedTensors* tensors) {
  PyObj* rate = api.PyDict_GetItemString(group, "lr");
  if (is_first && rate != nullptr && rate->type == api.float_type) {
    tensors->rate = api.PyFloat_AsDouble(rate);
    tensors->rate_known = true;
  }
  ReadAllNumbers(api, group, tensors);
}

// The list of a group's parameters, borrowed; null: it has none.
PyObj* ParametersOf(const PythonApi& api, PyObj* group) {
  if (group == nullptr || !api.HasFlag(group, kPyFlagDict)) return nullptr;
  PyObj* parameters = api.PyDict_GetItemString(group, "params");
  return parameters != nullptr && api.HasFlag(parameters, kPyFlagList) ? parameters : nullptr;
}

// Whether objects are tensors. Those that are met one after another are of one type or two.
class TensorTypes {
 public:
  TensorTypes(const PythonApi& api, PyObj* tensor_type) noexcept
      : api_(api), tensor_type_(tensor_type) {}
  [[nodiscard]] bool Has(const PyObj* object) noexcept {
    if (object->type == known_[0] || object->type == known_[1]) return true;
    if (api_.PyType_IsSubtype(object->type, tensor_type_) == 0) return false;
    known_[1] = known_[0];
    known_[0] = object->type;
    return true;
  }

 private:
  const PythonApi& api_;
  PyObj* tensor_type_;
  const PyObj* known_[2] =
      {};  // alive as long as this: one of its tensors is held by the optimizer
};

// `fn(object, tensor)` for each tensor in the list, until it answers false; what it answered.
template <class Fn>
bool ForEachTensorIn(const PythonApi& api, PythonNames& names, TensorTypes& types, PyObj* list,
                     Fn&& fn) {
  const ptrdiff_t count = api.PyList_Size(list);
  for (ptrdiff_t i = 0; i < count; ++i) {
    PyObj* object = api.PyList_GetItem(list, i);
    if (object == nullptr || !types.Has(object)) continue;
    const at::TensorBase* tensor = names.TensorOf(object);
    if (tensor != nullptr && !fn(object, *tensor)) return false;
  }
  return true;
}

void AddGroup(const PythonApi& api, PythonNames& names, TensorTypes& types, PyObj* group,
              bool is_first, OptimizedTensors* tensors) {
  PyObj* parameters = ParametersOf(api, group);
  if (parameters == nullptr) return;
  double eps = -1;
  bool fused = false;
  using For = OptimizedTensors::For;
  if (tensors->what == For::kGradients) ReadNumbers(api, group, is_first, tensors);
  if (tensors->what == For::kStats) {
    // Exactly a float: of anything else Python would run code of its own to make one.
    PyObj* given = api.PyDict_GetItemString(group, "eps");
    if (given != nullptr && given->type == api.float_type) eps = api.PyFloat_AsDouble(given);
    fused = api.PyDict_GetItemString(group, "fused") == api.true_object;
  }
  const ptrdiff_t count = api.PyList_Size(parameters);
  if (count > 0) tensors->list.reserve(tensors->list.size() + static_cast<size_t>(count));
  ForEachTensorIn(api, names, types, parameters,
                  [&](const PyObj*, const at::TensorBase& parameter) {
                    const c10::TensorImpl* impl = parameter.unsafeGetTensorImpl();
                    OptimizedTensor& added = tensors->list.emplace_back();
                    if (impl->grad().defined()) {
                      added.gradient = LocalOf(api, names, impl->grad());
                    }
                    added.parameter = impl;
                    added.requires_grad = parameter.requires_grad();
                    const bool stats = tensors->what == For::kStats;
                    if (stats || tensors->holds_parameters)
                      added.held = LocalOf(api, names, parameter);
                    if (!stats) return true;
                    added.eps = eps;
                    added.fused = fused;
                    return true;
                  });
}

// A tensor that a step writes, as it is met: nothing holds it.
struct MetTensor {
  const PyObj* object;
  const at::TensorBase& tensor;     // what has the values
  const at::TensorBase* parameter;  // itself, or that of a state; null: not known
  bool is_state;

  [[nodiscard]] WrittenTensor Hold() const {
    const bool is_count =
        is_state && tensor.dim() == 0 && parameter != nullptr && parameter->dim() != 0;
    return {object, tensor, parameter != nullptr ? parameter->unsafeGetTensorImpl() : nullptr,
            is_state, is_count};
  }
};

// What an optimizer writes, met in one order: the parameters of its groups, then what `state` keeps
// for them by name.
class WrittenWalk {
 public:
  WrittenWalk(const PythonApi& api, PythonNames& names, TensorTypes& types, PyObj* groups,
              PyObj* state) noexcept
      : api_(api), names_(names), types_(types), groups_(groups), state_(state) {}

  // `fn(const MetTensor&)` until it answers false; what it answered.
  template <class Fn>
  bool ForEach(Fn&& fn) const {
    const ptrdiff_t count = api_.PyList_Size(groups_);
    for (ptrdiff_t i = 0; i < count; ++i) {
      PyObj* parameters = ParametersOf(api_, api_.PyList_GetItem(groups_, i));
      if (parameters == nullptr) continue;
      const bool goes_on = ForEachTensorIn(
          api_, names_, types_, parameters, [&](const PyObj* object, const at::TensorBase& tensor) {
            const at::TensorBase& local = LocalOf(api_, names_, tensor);
            return fn(MetTensor{object, local, &tensor, false});
          });
      if (!goes_on) return false;
    }
    return state_ == nullptr || !api_.HasFlag(state_, kPyFlagDict) || ForEachState(fn);
  }

 private:
  template <class Fn>
  bool ForEachState(Fn&& fn) const {
    PyObj* object = nullptr;
    PyObj* kept = nullptr;
    for (ptrdiff_t at = 0; api_.PyDict_Next(state_, &at, &object, &kept) != 0;) {
      if (!types_.Has(object) || !api_.HasFlag(kept, kPyFlagDict)) continue;
      const at::TensorBase* parameter = names_.TensorOf(object);
      PyObj* name = nullptr;
      PyObj* value = nullptr;
      for (ptrdiff_t inner = 0; api_.PyDict_Next(kept, &inner, &name, &value) != 0;) {
        if (!types_.Has(value)) continue;
        const at::TensorBase* tensor = names_.TensorOf(value);
        if (tensor == nullptr) continue;
        const at::TensorBase& local = LocalOf(api_, names_, *tensor);
        if (!fn(MetTensor{value, local, parameter, true})) return false;
      }
    }
    return true;
  }

  const PythonApi& api_;
  PythonNames& names_;
  TensorTypes& types_;
  PyObj* groups_;
  PyObj* state_;
};

// Whether the walk meets what was expected, and nothing else.
bool MeetsExpected(const WrittenWalk& walk, std::span<const TensorIdentity> expected) {
  size_t met = 0;
  const bool all = walk.ForEach([&](const MetTensor& tensor) {
    if (met == expected.size()) return false;
    const TensorIdentity& identity = expected[met++];
    return identity.Matches(tensor.object, *tensor.tensor.unsafeGetTensorImpl()) &&
           (!identity.is_number || identity.IsFinite());
  });
  return all && met == expected.size();
}

void ReadWritten(const WrittenWalk& walk, OptimizedTensors* tensors) {
  if (!tensors->expected.empty() && MeetsExpected(walk, tensors->expected)) {
    tensors->is_expected = true;
    return;
  }
  tensors->written.reserve(tensors->expected.size());
  walk.ForEach([tensors](const MetTensor& tensor) {
    tensors->written.push_back(tensor.Hold());
    return true;
  });
}

// Of what numel and the storage do not tell: two shapes of one tensor in turn have two numbers.
uint64_t MixedShape(const c10::TensorImpl& tensor) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15U;
  const c10::IntArrayRef sizes = tensor.sizes();
  const c10::IntArrayRef strides = tensor.strides();
  uint64_t mixed = sizes.size();
  for (size_t i = 0; i < sizes.size(); ++i) {
    mixed = (mixed + static_cast<uint64_t>(sizes[i])) * kOdd + static_cast<uint64_t>(strides[i]);
  }
  return mixed;
}

}  // namespace

TensorIdentity TensorIdentity::Of(const WrittenTensor& written) {
  const c10::TensorImpl& tensor = *written.held.unsafeGetTensorImpl();
  const c10::StorageImpl* storage = tensor.unsafe_storage().unsafeGetStorageImpl();
  const c10::ScalarType type = c10::typeMetaToScalarType(tensor.dtype());
  return {written.object,
          &tensor,
          storage,
          DataOf(*storage),
          storage->nbytes(),
          tensor.storage_offset(),
          tensor.numel(),
          MixedShape(tensor),
          type,
          tensor.numel() == 1 && storage->device_type() == c10::DeviceType::CPU &&
              (type == c10::ScalarType::Float || type == c10::ScalarType::Double),
          written.is_count};
}

bool TensorIdentity::Matches(const PyObj* other, const c10::TensorImpl& tensor) const noexcept {
  if (other != object || &tensor != impl) return false;
  if (is_count && !is_number) return true;
  const c10::StorageImpl* now = tensor.unsafe_storage().unsafeGetStorageImpl();
  return now == storage && DataOf(*now) == data && now->nbytes() == bytes &&
         !tensor.has_symbolic_sizes_strides() && tensor.storage_offset() == offset &&
         tensor.numel() == numel && MixedShape(tensor) == shape &&
         c10::typeMetaToScalarType(tensor.dtype()) == type;
}

namespace {

// GIL held.
bool IsOfTorch(const PythonApi& api, const PyObj* optimizer) {
  const PyOwned module(api, api.AttributeOrNull(optimizer->type, "__module__"));
  const char* text = module ? api.Text(module.get()) : nullptr;
  return text != nullptr && std::string_view(text).starts_with("torch.optim.");
}

}  // namespace

bool TensorIdentity::IsFinite() const noexcept {
  if (type == c10::ScalarType::Double) {
    return std::isfinite(static_cast<const double*>(data)[offset]);
  }
  return std::isfinite(static_cast<const float*>(data)[offset]);
}

bool ReadOptimizedTensors(const PythonApi& api, PythonNames& names, PyObj* tensor_type,
                          PyObj* optimizer, OptimizedTensors* tensors) noexcept try {
  // A thread without a state of Python's own has no frame that runs an optimizer.
  if (!api.Running() || api.PyGILState_GetThisThreadState() == nullptr) return false;
  // Without the GIL another thread may change what was verified before it is checked.
  const bool may_expect = api.PyGILState_Check() != 0;
  const Gil gil(api);
  TensorTypes types(api, tensor_type);
  using For = OptimizedTensors::For;
  const PyOwned groups(
      api, tensors->what != For::kSkip ? api.AttributeOrNull(optimizer, "param_groups") : nullptr);
  if (tensors->what != For::kSkip && (!groups || !api.HasFlag(groups.get(), kPyFlagList))) {
    return false;
  }
  if (tensors->what == For::kGradients) tensors->is_of_torch = IsOfTorch(api, optimizer);
  // Not as an attribute: where there is none, making the exception would cost more than all else.
  const PyOwned own(api, api.AttributeOrNull(optimizer, "__dict__"));
  const bool has_own = own && api.HasFlag(own.get(), kPyFlagDict);
  if (tensors->what == For::kWritten) {
    PyObj* state = has_own ? api.PyDict_GetItemString(own.get(), "state") : nullptr;
    if (!may_expect) tensors->expected = {};
    ReadWritten({api, names, types, groups.get(), state}, tensors);
    return true;
  }
  if (tensors->what != For::kSkip) {
    const ptrdiff_t count = api.PyList_Size(groups.get());
    for (ptrdiff_t i = 0; i < count; ++i) {
      AddGroup(api, names, types, api.PyList_GetItem(groups.get(), i), i == 0, tensors);
    }
  }
  if (!has_own) return true;
  const auto find = [&](const char* name, at::TensorBase* found) {
    PyObj* object = api.PyDict_GetItemString(own.get(), name);
    if (object == nullptr || !types.Has(object)) return;
    const at::TensorBase* tensor = names.TensorOf(object);
    if (tensor != nullptr) *found = *tensor;
  };
  find("found_inf", &tensors->found_inf);
  find("grad_scale", &tensors->grad_scale);
  return true;
} catch (const std::exception&) {
  *tensors = {};
  return false;
}

}  // namespace nanwatch
