// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/names/layer_table.h"

#include <algorithm>
#include <cstring>

namespace nanwatch {

constinit thread_local ScopeStack scope_stack;

namespace {

constexpr size_t kSlotsAtFirst = 1024;

// Never freed: layers outlive everything that could read them.
const char* Keep(std::string_view text) {
  char* copy = new char[text.size() + 1];
  memcpy(copy, text.data(), text.size());
  copy[text.size()] = 0;
  return copy;
}

std::string LayerKey(std::string_view path, std::string_view type) {
  std::string key(path);
  key += '\0';
  key += type;
  return key;
}

}  // namespace

LayerTable::LayerTable() : slots_(kSlotsAtFirst), mask_(kSlotsAtFirst - 1) {
  auto* unnamed = new Layer;
  unnamed->root_layer = unnamed;
  unnamed_ = unnamed;
  layer_count_ = 1;
}

void LayerTable::Put(const ModuleEntry& entry) {
  size_t i = Slot(entry.module);
  while (slots_[i].module != nullptr && slots_[i].module != entry.module) i = (i + 1) & mask_;
  if (slots_[i].module == nullptr) {
    if (used_ >= kEntriesMax) return;
    if ((used_ + 1) * 2 > slots_.size()) {
      Rebuild(slots_.size() * 2, nullptr, false);
      Put(entry);
      return;
    }
    ++used_;
  }
  slots_[i] = entry;
}

void LayerTable::Forget(const Root* root, bool all) { Rebuild(slots_.size(), root, all); }

void LayerTable::Rebuild(size_t capacity, const Root* without, bool all) {
  std::vector<ModuleEntry> old(capacity);
  old.swap(slots_);
  mask_ = capacity - 1;
  used_ = 0;
  for (const ModuleEntry& entry : old) {
    if (entry.module == nullptr) continue;
    if (without != nullptr && entry.root == without && (all || entry.layer != nullptr)) continue;
    size_t i = Slot(entry.module);
    while (slots_[i].module != nullptr) i = (i + 1) & mask_;
    slots_[i] = entry;
    ++used_;
  }
}

const Layer* LayerTable::Intern(Root& root, std::string_view path, std::string_view type,
                                const Layer* parent) {
  std::string key = LayerKey(path, type);
  const auto known = root.layers.find(key);
  if (known != root.layers.end()) return known->second;
  if (layer_count_ >= kLayersMax) return unnamed_;
  auto* layer = new Layer;
  layer->path = Keep(path);
  layer->type = Keep(type);
  layer->root = root.name;
  layer->parent = parent;
  layer->root_layer = root.layer == nullptr ? layer : root.layer;
  layer->index = layer_count_++;
  root.layers.emplace(std::move(key), layer);
  return layer;
}

Root* LayerTable::NewRoot(std::string_view type) {
  std::string name(type);
  const uint32_t ordinal = ordinals_[name]++;
  name += '#';
  name += std::to_string(ordinal);
  auto* root = new Root;
  root->name = layer_count_ < kLayersMax ? Keep(name) : "";
  roots_.push_back(root);
  return root;
}

void LayerTable::RemoveRoot(Root* root) {
  Forget(root, true);
  std::erase(roots_, root);
  root->layers.clear();  // the root itself stays: a thread may still be inside a call of it
}

}  // namespace nanwatch
