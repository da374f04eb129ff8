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
#include <span>
#include <unordered_map>
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
  // Without `builds` there is no plan in the end. `expected`: so many tensors will come.
  PlanBuilder(bool builds, size_t expected) noexcept;
  // `named`: of a parameter. What is no run on a GPU, and no number, leaves no plan.
  void Add(const WrittenTensor& written, const PlainTensor& plain,
           const NamedTensor* named) noexcept;
  void GiveUp() noexcept { fits_ = false; }
  // Null: there is none.
  [[nodiscard]] std::shared_ptr<const UpdatePlan> Build(
      const void* optimizer, uint64_t names, std::span<const TensorListPtr> lists) noexcept;

 private:
  UpdatePlan plan_;
  bool fits_;
  size_t listed_ = 0;
};

class UpdatePlans {
 public:
  // Null: there is none, or names have changed since.
  [[nodiscard]] std::shared_ptr<const UpdatePlan> Find(const void* optimizer,
                                                       uint64_t names) noexcept;
  // What was found is what is written now.
  void OnMatch(const void* optimizer) noexcept;
  // False for a while where plans of it were built some times in a row and never matched: what it
  // writes is another in each step.
  [[nodiscard]] bool MayBuild(const void* optimizer) noexcept;
  // In the place of the optimizer's.
  void Keep(std::shared_ptr<const UpdatePlan> plan) noexcept;

 private:
  struct Kept {
    std::shared_ptr<const UpdatePlan> plan;
    uint32_t unmatched = 0;  // built since one matched
    uint32_t pause = 0;      // so many steps go without one
  };
  static constexpr size_t kMax = 1024;  // optimizers
  static constexpr uint32_t kUnmatchedMax = 3;
  static constexpr uint32_t kPause = 64;

  std::mutex mutex_;
  std::unordered_map<const void*, Kept> kept_;
};

}  // namespace canary
}  // namespace nanwatch
