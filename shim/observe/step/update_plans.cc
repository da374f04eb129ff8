// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/update_plans.h"

#include <utility>

#include "shim/observe/torch/torch_tensor.h"

namespace nanwatch::canary {

bool UpdatePlan::NameOf(size_t place, const c10::TensorImpl* parameter,
                        const NamedTensor** named) const noexcept {
  if (place >= parameters.size()) return false;
  const TensorIdentity& identity = written[place];
  if (identity.impl != parameter ||
      identity.storage != parameter->unsafe_storage().unsafeGetStorageImpl()) {
    return false;
  }
  *named = parameters[place];
  return true;
}

PlanBuilder::PlanBuilder(bool builds, size_t expected) noexcept : fits_(builds) {
  try {
    if (builds) plan_.written.reserve(expected);
  } catch (...) {
    GiveUp();
  }
}

void PlanBuilder::Add(const WrittenTensor& written, const PlainTensor& plain,
                      const NamedTensor* named) noexcept try {
  // Of a sparse tensor its values are described.
  fits_ = fits_ && plain.impl == written.held.unsafeGetTensorImpl();
  if (!fits_) return;
  const TensorIdentity& identity = plan_.written.emplace_back(TensorIdentity::Of(written));
  if (!written.is_state) plan_.parameters.push_back(named);
  if (identity.is_number) {
    ++plan_.numbers;
    plan_.number_bytes += BytesOf(plain.view);
  }
  listed_ += plain.gpu >= 0 && !written.is_count;
  fits_ = plain.gpu >= 0 || identity.is_number;
} catch (...) {
  GiveUp();
}

std::shared_ptr<const UpdatePlan> PlanBuilder::Build(const void* optimizer, uint64_t names,
                                                     std::span<const TensorListPtr> lists) noexcept
    try {
  size_t in_lists = 0;
  for (const TensorListPtr& list : lists) in_lists += list->size();
  if (!fits_ || in_lists == 0 || in_lists != listed_) return nullptr;
  plan_.optimizer = optimizer;
  plan_.names = names;
  plan_.lists.assign(lists.begin(), lists.end());
  return std::make_shared<const UpdatePlan>(std::move(plan_));
} catch (...) {
  return nullptr;
}

std::shared_ptr<const UpdatePlan> UpdatePlans::Find(const void* optimizer,
                                                    uint64_t names) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = kept_.find(optimizer);
  if (found == kept_.end() || found->second.plan == nullptr) return nullptr;
  return found->second.plan->names == names ? found->second.plan : nullptr;
}

void UpdatePlans::OnMatch(const void* optimizer) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = kept_.find(optimizer);
  if (found != kept_.end()) found->second.unmatched = 0;
}

bool UpdatePlans::MayBuild(const void* optimizer) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = kept_.find(optimizer);
  if (found == kept_.end() || found->second.pause == 0) return true;
  --found->second.pause;
  return false;
}

void UpdatePlans::Keep(std::shared_ptr<const UpdatePlan> plan) noexcept try {
  std::unordered_map<const void*, Kept> gone;  // goes when the lock has been given back
  const std::lock_guard<std::mutex> lock(mutex_);
  if (kept_.size() >= kMax && kept_.count(plan->optimizer) == 0) gone.swap(kept_);
  Kept& kept = kept_[plan->optimizer];
  kept.plan.swap(plan);
  if (++kept.unmatched < kUnmatchedMax) return;
  gone[nullptr].plan.swap(kept.plan);
  kept.unmatched = 0;
  kept.pause = kPause;
} catch (...) {
}

}  // namespace nanwatch::canary
