// SPDX-License-Identifier: Apache-2.0
// Calls that save a checkpoint, replaced by functions that tell what is saved and make the call:
//   torch.save, safetensors.torch.save_file, torch.distributed.checkpoint.save
// wherever a module holds them, under whatever name.
//
// Of what is saved, all tensors are found in dicts, lists, tuples and modules, and in the
// attributes of objects of the program's own classes.
#pragma once

#include <ATen/core/TensorBase.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "shim/observe/python/api/python_api.h"
#include "shim/observe/python/names/python_names.h"

namespace nanwatch {

struct SavedTensor {
  const at::TensorBase* tensor;  // lives as long as what is saved
  std::string name;              // the keys on the way to it, "model.fc.weight"
};

struct SavedTensors {
  std::vector<SavedTensor> tensors;
  bool left_out = false;                 // there are more, or deeper ones
  std::unordered_set<const void*> seen;  // objects that may hold one another
};

class CheckpointCalls {
 public:
  static constexpr unsigned kOpenMax = 8;  // saves at one time, of all threads
  static constexpr size_t kTensorsMax = size_t{1} << 17;
  static constexpr int kDepthMax = 8;  // of dicts, lists and tuples
  static constexpr int kModuleDepthMax = 64;

  // On the thread of the call, with the GIL. `save`, below kOpenMax, stands for it until it ends. A
  // save that another one makes is part of that. All are set, or none.
  struct Callbacks {
    void (*on_begin)(unsigned save, const SavedTensors& saved) = nullptr;
    // The save has ended, and on_end follows. Without the GIL.
    void (*on_wait)(unsigned save) = nullptr;
    // `file`: as the program gave it; "" where it has no name. After an exception `failed`.
    void (*on_end)(unsigned save, const char* file, bool failed) = nullptr;
  };

  // `tensor_type` is set once TryReplace may be called.
  CheckpointCalls(const PythonApi& api, PythonNames& names, PyObj* const& tensor_type,
                  const Callbacks& callbacks) noexcept
      : api_(api), names_(names), tensor_type_(tensor_type), callbacks_(callbacks) {}
  CheckpointCalls(const CheckpointCalls&) = delete;
  CheckpointCalls& operator=(const CheckpointCalls&) = delete;

  // GIL held: replaces those that are imported by now. To be called again: others may come later.
  // Leaves Python's error indicator as it was.
  void TryReplace();

 private:
  static constexpr int kFunctions = 3;
  struct Open {
    unsigned long thread = 0;  // 0: free
    int pid = 0;               // a forked child has the parent's table
    int depth = 0;
  };

  static PyObj* OnCall(PyObj* self, PyObj* told);
  void Begin(PyObj* arguments, PyObj* named);
  void End(PyObj* arguments, PyObj* named, bool failed);
  static void Tell(PyObj* told);
  [[nodiscard]] bool MayHoldTensors(PyObj* object) const;
  void Collect(PyObj* object, const std::string& name, int depth, SavedTensors* found);
  void CollectItems(PyObj* sequence, const std::string& name, int depth, SavedTensors* found);
  void CollectModule(PyObj* module, const std::string& name, int depth, SavedTensors* found);
  void CollectAttributes(PyObj* object, const std::string& name, int depth, SavedTensors* found);
  void CollectDict(PyObj* dict, const std::string& name, int depth, SavedTensors* found);
  [[nodiscard]] std::string KeyText(PyObj* key) const;
  [[nodiscard]] std::string FileOf(PyObj* arguments, PyObj* named) const;
  [[nodiscard]] std::string PathText(PyObj* file) const;
  [[nodiscard]] Open* OfThisThread(bool claim);

  const PythonApi& api_;
  PythonNames& names_;
  PyObj* const& tensor_type_;
  const Callbacks callbacks_;
  // All with the GIL held.
  PyObj* module_type_ = nullptr;
  bool replaced_[kFunctions] = {};
  Open open_[kOpenMax];
};

}  // namespace nanwatch
