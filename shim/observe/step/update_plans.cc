// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/step/update_plans.h"

#include <algorithm>
#include <iterator>
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

void PlanBuilder::Add(const WrittenTensor& written, const PlainTensor& plain,
                      const NamedTensor* named) {
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
}

std::shared_ptr<const UpdatePlan> PlanBuilder::Build(const void* optimizer, uint64_t names,
                                                     std::span<const TensorListPtr> lists) {
  size_t in_lists = 0;
  for (const TensorListPtr& list : lists) in_lists += list->size();
  if (!fits_ || in_lists == 0 || in_lists != listed_) return nullptr;
  plan_.optimizer = optimizer;
  plan_.names = names;
  plan_.lists.assign(lists.begin(), lists.end());
  return std::make_shared<const UpdatePlan>(std::move(plan_));
}

std::shared_ptr<const UpdatePlan> UpdatePlans::Find(const void* optimizer,
                                                    uint64_t names) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& plan : plans_) {
    if (plan != nullptr && plan->optimizer == optimizer && plan->names == names) return plan;
  }
  return nullptr;
}

void UpdatePlans::Keep(std::shared_ptr<const UpdatePlan> plan) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto place = std::find_if(std::begin(plans_), std::end(plans_), [&plan](const auto& kept) {
    return kept != nullptr && kept->optimizer == plan->optimizer;
  });
  if (place == std::end(plans_)) place = &plans_[next_++ % kMax];
  place->swap(plan);  // what stood there goes when the lock has been given back
}

}  // namespace nanwatch::canary
