// SPDX-License-Identifier: Apache-2.0
// Which layer a thread is in, and which layer a Python module object is.
//
// A layer is a module's place in its root: "encoder.layers.0" of "Model#0". Layers are made when a
// root is first called, are immutable once published and are never freed, so a `const Layer*` may
// be stored anywhere and read by any thread.
//
// ScopeStack is written by the module-call descriptor of its own thread and read by callbacks of
// the same thread; no GIL and no atomics. The saved state of outer calls lies on the C stack of the
// descriptor, not here. LayerTable is used with the GIL held, which is its lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "proto/wire/hash.h"
#include "shim/observe/python/api/python_api.h"

namespace nanwatch {

inline constexpr uint32_t kLayersMax = 65536;

struct Layer {
  const char* path = "";  // as named_modules() gives it, wrappers stripped; "" for the root itself
  const char* type = "";  // class name, "Linear"
  const char* root = "";  // class and ordinal of the outermost module, "Model#0"
  const Layer* parent = nullptr;      // the registered parent's layer; null for a root
  const Layer* root_layer = nullptr;  // itself for a root; never null
  uint32_t index = 0;  // dense, below kLayersMax; for side tables. 0 is the unnamed layer
};

// Whether it is `outer`, or stands in it.
inline bool IsWithin(const Layer* layer, const Layer* outer) noexcept {
  while (layer != nullptr && layer != outer) layer = layer->parent;
  return layer == outer;
}

struct Root;

struct ScopeStack {
  const Layer* top = nullptr;    // null outside module calls, and in modules that have no name
  uint32_t depth = 0;            // module calls open on this thread
  bool compiled_region = false;  // a compiled region ran since the innermost call began
  bool result_wanted = false;    // of the outermost call
  bool module_results_wanted = false;  // of all calls in it
  Root* outermost = nullptr;           // the root of the depth-0 call; the bridge's own use
};

// Initial-exec: reading it is one load relative to the thread register. It costs 32 bytes of static
// TLS.
extern constinit thread_local ScopeStack scope_stack
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

// The layer whose module call is innermost on this thread; null outside of any. Any thread, no GIL.
[[nodiscard]] inline const Layer* CurrentLayer() noexcept { return scope_stack.top; }
// How many module calls are open on this thread; 0 outside. Any thread, no GIL.
[[nodiscard]] inline uint32_t ScopeDepth() noexcept { return scope_stack.depth; }
// For the observer to call when it sees a "Torch-Compiled Region" range on this thread: the
// innermost open module call then hands its returned tensors to on_region_outputs.
inline void MarkCompiledRegion() noexcept { scope_stack.compiled_region = true; }

// One outermost module. Belongs to LayerTable and is never freed, a few hundred bytes: threads keep
// pointers to it.
struct Root {
  PyObj* module = nullptr;  // borrowed: compare, never dereference without `weak`
  PyObj* weak = nullptr;    // weak reference to `module`, owned; null where the class allows none
  const Layer* layer = nullptr;
  const char* name = "";                                 // "Model#0"
  std::unordered_map<std::string, const Layer*> layers;  // "path\0type" -> layer
  uint64_t rescan_end_ns = 0;   // when the tree was last walked, monotonic clock
  uint64_t rescan_cost_ns = 0;  // how long that took
  uint32_t rescans = 0;
  const void* tensors = nullptr;  // PythonNames' own: what it knows of this root
  uint32_t next_checked = 0;      // PythonNames::Moved goes round
  uint32_t nameless_times = 0;    // its own, too
};

struct ModuleEntry {
  PyObj* module = nullptr;       // borrowed, an identity
  PyObj* type = nullptr;         // its type when it was entered: tells most reused addresses apart
  const Layer* layer = nullptr;  // null: known, but registered nowhere: it takes its caller's layer
  Root* root = nullptr;
  const PyObj* wrapped = nullptr;  // what it wraps, for a wrapper; an identity
  bool optimized = false;          // an OptimizedModule
};

class LayerTable {
 public:
  LayerTable();

  // The entry of a module, or null. No Python call; a few loads.
  [[nodiscard]] const ModuleEntry* Find(const PyObj* module) const noexcept {
    for (size_t i = Slot(module);; i = (i + 1) & mask_) {
      const ModuleEntry& entry = slots_[i];
      if (entry.module == module) return &entry;
      if (entry.module == nullptr) return nullptr;
    }
  }

  // Adds or replaces. Dropped silently when the table holds kEntriesMax (then modules have no
  // name).
  void Put(const ModuleEntry& entry);
  // Forgets the entries of `root`, those without a layer too if `all`.
  void Forget(const Root* root, bool all);

  // The layer of `path` in `root`; the same pointer whenever asked again. The unnamed layer when
  // kLayersMax exist.
  [[nodiscard]] const Layer* Intern(Root& root, std::string_view path, std::string_view type,
                                    const Layer* parent);
  // A new root whose name is the class and how many roots of that class came before.
  [[nodiscard]] Root* NewRoot(std::string_view type);
  void RemoveRoot(Root* root);  // with its entries; layers stay

  [[nodiscard]] const std::vector<Root*>& roots() const noexcept { return roots_; }
  [[nodiscard]] const Layer* unnamed() const noexcept { return unnamed_; }
  [[nodiscard]] uint32_t layer_count() const noexcept { return layer_count_; }

 private:
  static constexpr size_t kEntriesMax = size_t{1} << 18;

  [[nodiscard]] size_t Slot(const PyObj* module) const noexcept {
    // Objects are 16-byte aligned; the multiplication spreads what is left.
    return static_cast<size_t>((reinterpret_cast<uintptr_t>(module) >> 4) * wire::kGoldenRatio >>
                               32) &
           mask_;
  }
  void Rebuild(size_t capacity, const Root* without, bool all);

  std::vector<ModuleEntry> slots_;
  size_t mask_ = 0;
  size_t used_ = 0;
  std::vector<Root*> roots_;
  std::unordered_map<std::string, uint32_t> ordinals_;
  const Layer* unnamed_ = nullptr;
  uint32_t layer_count_ = 0;
};

}  // namespace nanwatch
