// SPDX-License-Identifier: Apache-2.0
// What an optimizer writes on a GPU, described once. In each step it is only verified that all of
// it is still what it was (TensorIdentity), which takes a few comparisons a tensor. Where something
// has changed it is described anew.
//
// Threads: any. A plan does not change.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "shim/observe/events/tensor_list.h"
#include "shim/observe/python/names/optimizer_tensors.h"

namespace nanwatch {

struct NamedTensor;

namespace canary {

struct UpdatePlan {
  const void* optimizer = nullptr;  // its identity
  uint64_t names = 0;               // PythonNames::generation() when names were asked for
  std::vector<TensorIdentity> written;
  std::vector<const NamedTensor*> parameters;  // names of the first of these
  // What is checked of it. They hold its storages weakly, so that no other has their addresses.
  std::vector<TensorListPtr> lists;
  // Those of `written` on the CPU, which are read where they are verified.
  uint32_t numbers = 0;
  uint64_t number_bytes = 0;

  // The name of the parameter that is `place`-th among those of the optimizer. False: it is not
  // known here.
  [[nodiscard]] bool NameOf(size_t place, const c10::TensorImpl* parameter,
                            const NamedTensor** named) const noexcept;
};

// Collects what a plan consists of, while what an update has written is described.
class PlanBuilder {
 public:
  // `named`: of a parameter. What is no run on a GPU, and no number, leaves no plan.
  void Add(const WrittenTensor& written, const PlainTensor& plain, const NamedTensor* named);
  void GiveUp() noexcept { fits_ = false; }
  // Null: there is none.
  [[nodiscard]] std::shared_ptr<const UpdatePlan> Build(const void* optimizer, uint64_t names,
                                                        std::span<const TensorListPtr> lists);

 private:
  UpdatePlan plan_;
  bool fits_ = true;
  size_t listed_ = 0;
};

class UpdatePlans {
 public:
  // Null: there is none, or names have changed since.
  [[nodiscard]] std::shared_ptr<const UpdatePlan> Find(const void* optimizer,
                                                       uint64_t names) noexcept;
  // In the place of the optimizer's, or of the one that was kept first.
  void Keep(std::shared_ptr<const UpdatePlan> plan) noexcept;

 private:
  static constexpr size_t kMax = 16;  // optimizers

  std::mutex mutex_;
  std::shared_ptr<const UpdatePlan> plans_[kMax];
  size_t next_ = 0;
};

}  // namespace canary
}  // namespace nanwatch
