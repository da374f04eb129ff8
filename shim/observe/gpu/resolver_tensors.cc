// SPDX-License-Identifier: Apache-2.0
// Tensors that were handed over are resolved: gradients, losses, what updates and regions left.
#include <algorithm>

#include "shim/observe/events/known_bad.h"
#include "shim/observe/events/poison.h"
#include "shim/observe/events/process_segment.h"
#include "shim/observe/figures/layer_peaks.h"
#include "shim/observe/figures/parameter_stats.h"
#include "shim/observe/gpu/answer_stats.h"
#include "shim/observe/gpu/resolver.h"
#include "shim/observe/step/backward_pass.h"
#include "shim/observe/step/canary.h"
#include "shim/observe/step/loss.h"
#include "shim/observe/step/poison_watch.h"
#include "shim/observe/step/step_losses.h"
#include "shim/observe/step/step_progress.h"
#include "shim/observe/step/step_scope.h"
#include "shim/observe/thread/seen_inputs.h"
#include "shim/observe/torch/tensor_stats.h"
#include "shim/observe/torch/weak_storage.h"
#include "shim/observe/unseen/compiled_writer.h"
#include "shim/observe/unseen/external_values.h"
#include "shim/observe/unseen/named_values.h"

namespace nanwatch {
namespace {

// One of a list, which goes on holding it. The list may be one that was captured: another tensor
// may be at the address of this one by now; its storage's is never used again.
SeenTensor SeenIn(const ListedTensor& listed, int8_t gpu) {
  SeenTensor tensor{};
  InputSeen& seen = tensor.seen;
  seen.storage = listed.storage;
  seen.impl = TorchWeakStorageOps().expired(listed.storage.handle) ? nullptr : listed.impl;
  seen.data = listed.data;
  seen.numel = listed.numel;
  seen.type = listed.type;
  seen.ndim = listed.ndim;
  std::copy_n(listed.sizes, listed.ndim, seen.sizes);
  std::copy_n(listed.strides, listed.ndim, seen.strides);
  seen.byte_begin = listed.byte_begin;
  seen.byte_end = listed.byte_end;
  seen.gpu = gpu;
  tensor.looked_at = -1;
  tensor.target = listed.target;
  tensor.named = listed.named;
  tensor.name = listed.name;
  FillShapeOnly(seen.View(), &tensor.stats);
  return tensor;
}

}  // namespace

uint32_t GpuResolver::NameOf(const SeenTensor& tensor) const noexcept {
  Emitter* emitter = tensor.named != nullptr ? parts_.segment.Ensure() : nullptr;
  return emitter != nullptr ? InternText(*emitter, tensor.named->name) : tensor.name;
}

void GpuResolver::ResolveTensors(OpEvent& event, const GpuAnswer& answer) noexcept {
  if (answer.measures != nullptr) return ResolveMeasures(event, answer.measures);
  if (answer.sums != nullptr) ResolveSums(event, *answer.sums);
  if (event.checked_as == CheckedAs::kProbe) {
    return parts_.poison_watch.OnProbe(event.number, event.outputs,
                                       answer.outcome == device::Finished::Outcome::kBad);
  }
  if (answer.outcome != device::Finished::Outcome::kBad) return;
  if (event.checked_as == CheckedAs::kUnread) return;  // it stays unread
  // Whose gradients are bad is known of each step, whatever else is not told any more.
  if (parts_.poison.Poisoned() && !AreGradients(event.checked_as)) return;
  if (event.list != nullptr) return ResolveList(event, answer);
  if (event.checked_as == CheckedAs::kOfRegion) SettleGiven(event, answer);
  for (uint32_t i = 0; i < event.outputs; ++i) {
    if (answer.result->output_kinds[i] == 0) continue;
    FillOutput(*answer.result, static_cast<int>(i), &event.tensors[i].stats);
    ResolveTensor(event, event.tensors[i]);
  }
}

// One that is bad; its `stats` are filled.
void GpuResolver::ResolveTensor(OpEvent& event, SeenTensor& tensor) noexcept {
  tensor.seen.counted = &tensor.stats;
  const PlainTensor plain = tensor.seen.Plain();
  switch (event.checked_as) {
    case CheckedAs::kEntries:
      ResolveReceived(resolver_, plain);
      return parts_.named_values.ReportEntry(plain, tensor.target, NameOf(tensor));
    case CheckedAs::kGradients:
      if (skips_update_) return;
      if (parts_.poison.Poisoned()) return parts_.gradients.ReportWatched(plain, tensor.named);
      return parts_.gradients.Report(resolver_, plain, tensor.named);
    case CheckedAs::kWatchedGradients:
      if (skips_update_) return;
      return parts_.gradients.ReportWatched(plain, tensor.named);
    case CheckedAs::kLoss:
      return parts_.loss_reads.ReportBad(resolver_, plain, event.moment.place.layer);
    case CheckedAs::kLossNumber:
    case CheckedAs::kScale:
    case CheckedAs::kScaleOfStep:
    case CheckedAs::kGradientScale:
    case CheckedAs::kFoundInf:
    case CheckedAs::kProbe:
    case CheckedAs::kUnread:
    case CheckedAs::kMeasuredGradients:
    case CheckedAs::kMeasuredResults:
    case CheckedAs::kSampled:
    case CheckedAs::kMeasuredUpdates:
      return;
    case CheckedAs::kGiven:
      return ResolveGiven(plain);
    case CheckedAs::kReceived:
      ResolveReceived(resolver_, plain);
      return;
    case CheckedAs::kOfRegion:
      return ResolveOfRegion(event, plain);
    case CheckedAs::kWritten:
      return parts_.gradients.ReportWritten(resolver_, plain, tensor.named,
                                            tensor.target == wire::Target::kOptimizerState);
  }
}

// What went into the region: known where it is bad, and where nobody knew, from now on.
void GpuResolver::SettleGiven(OpEvent& event, const GpuAnswer& answer) noexcept {
  for (uint32_t i = event.outputs; i < event.outputs + event.inputs; ++i) {
    SeenTensor& tensor = event.tensors[i];
    const int place = tensor.looked_at;
    if (place >= 0) {
      FillInput(*answer.result, place, &tensor.stats);
    }
    SettleInput(place >= 0, &tensor);
    if (tensor.seen.kinds == 0 || tensor.seen.known) continue;
    if (!ResolveReceived(resolver_, tensor.seen.Plain()))
      parts_.external_values.Remember(tensor.seen.Plain(), tensor.target, NameOf(tensor));
    tensor.seen.known = FindBad(tensor.seen, &tensor.seen.bad);
  }
}

void GpuResolver::ResolveOfRegion(const OpEvent& event, const PlainTensor& output) noexcept {
  wire::Source known{};
  ValueRef value;
  if (parts_.known_bad.SourceOf(output, &known, &value)) return;
  UnobservedWriter writer =
      compiled_regions::WriterOf(event.region.name, event.region.layer, event.region.is_backward);
  // An op that the region called has said more than its arguments do.
  if (event.region.first_event != 0 && region_bad_at_ >= event.region.first_event) {
    writer.Add(region_source_, region_value_);
  } else {
    for (uint32_t i = event.outputs; i < event.outputs + event.inputs; ++i) {
      const InputSeen& given = event.tensors[i].seen;
      if (!given.known) continue;
      wire::Source source = SourceFrom(given.bad);
      source.kinds = given.kinds;
      writer.Add(source, given.bad.value);
    }
  }
  parts_.compiled_writes.Report(resolver_, &writer, output);
}

void GpuResolver::ResolveLeaf(LeafEvent& event) noexcept {
  if (!event.has_gradient) return parts_.passes.RecordLeaf(resolver_, nullptr, event.named);
  InputSeen& seen = event.gradient.seen;
  BadEntry entry;
  if (seen.gpu >= 0 && FindBad(seen, &entry)) {
    FillKinds(KindsOf(entry), &event.gradient.stats);
    if (bad_leaf_.ticket == 0 || bad_leaf_step_ != parts_.progress.completed()) {
      bad_leaf_ = entry.value;
      bad_leaf_step_ = parts_.progress.completed();
    }
  }
  seen.counted = &event.gradient.stats;
  const PlainTensor gradient = seen.Plain();
  parts_.passes.RecordLeaf(resolver_, &gradient, event.named);
}

void GpuResolver::ResolveSums(const OpEvent& event, const device::ListSums& sums) noexcept {
  switch (event.checked_as) {
    case CheckedAs::kLoss:
    case CheckedAs::kLossNumber:
      return parts_.losses.Record(sums.first);
    case CheckedAs::kScale:
      scale_ = sums.first;
      scale_known_ = true;
      return;
    case CheckedAs::kGradientScale:
      return parts_.gradients.SetScale(sums.first);
    case CheckedAs::kFoundInf:
      skips_update_ = sums.first != 0;
      return;
    case CheckedAs::kScaleOfStep:
      return parts_.steps.OnScaleUpdate(
          resolver_, {sums.first, /*known=*/true, /*found_inf=*/!sums.IsZero(1)});
    default:
      break;
  }
  uint32_t summed = 0;
  uint32_t zero = 0;
  uint32_t i = 0;
  for (const device::ListEntry& entry : event.list->entries()) {
    summed += device::IsSummed(device::TypeOf(entry));
    zero += sums.IsZero(i++);
  }
  parts_.gradients.AddSums(sums.squares, summed, zero);
}

void GpuResolver::ResolveList(OpEvent& event, const GpuAnswer& answer) noexcept {
  const device::ListResult list = device::ListOf(*answer.result);
  for (uint32_t i = 0; i < event.outputs; ++i) {
    const ListedEntry found = FindListed(list, i);
    if (found.kinds == 0) continue;
    SeenTensor tensor = SeenIn(event.list->tensors()[i], event.list->gpu());
    if (found.counted) {
      FillCounts(found.counts, found.kinds, list.brief != 0, &tensor.stats);
      PlaceToIndex(tensor.seen.View(), &tensor.stats);
    } else {
      FillKinds(found.kinds, &tensor.stats);
    }
    ResolveTensor(event, tensor);
  }
}

void GpuResolver::ResolveMeasures(const OpEvent& event, const device::Measure* measures) noexcept {
  for (uint32_t i = 0; i < event.outputs; ++i) {
    const device::Measure& told = measures[i];
    const SeenTensor& tensor = event.tensors[i];
    const Layer* layer = event.moment.place.layer;
    switch (event.checked_as) {
      case CheckedAs::kMeasuredResults:
        if (layer == nullptr || !told.IsFinite()) break;
        LayerPeaks::RecordLargest(layer, tensor.seen.type, told.largest);
        break;
      case CheckedAs::kMeasuredUpdates:
        parts_.parameter_stats.AddUpdate(event.snapshot, tensor.name, {told.sum, told.squares});
        break;
      case CheckedAs::kMeasuredGradients:
        parts_.parameter_stats.AddGradient(event.snapshot, tensor.name,
                                           {told.sum, told.squares, told.largest, told.zeros});
        break;
      default:
        break;
    }
  }
}

}  // namespace nanwatch
