// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/capsule/capsules.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <cstdio>
#include <new>

#include "shim/emit/emitter.h"
#include "shim/host/capsule_folder.h"
#include "shim/observe/capsule/call_image.h"
#include "shim/observe/capsule/torch_flags.h"
#include "shim/observe/events/finding_record.h"

namespace nanwatch {
namespace {

// Of the places, so many at most for what is -Inf alone: a mask is made in each step, and must not
// keep out what ruins a training.
constexpr int kOnlyNegativeMax = 1;

const char* ClassName(wire::FindingClass finding_class) {
  switch (finding_class) {
    case wire::FindingClass::kProduce:
      return "produce";
    case wire::FindingClass::kInfToNan:
      return "inf_to_nan";
    default:
      return "external";
  }
}

const char* PhaseName(wire::Phase phase) {
  switch (phase) {
    case wire::Phase::kForward:
      return "forward";
    case wire::Phase::kBackward:
      return "backward";
    case wire::Phase::kOptimizer:
      return "optimizer";
    default:
      return "other";
  }
}

std::string NameOfRun(uint64_t run, uint32_t number) {
  char name[40];
  (void)std::snprintf(name, sizeof name, "%016llx-%u", static_cast<unsigned long long>(run),
                      number);
  return name;
}

// Ops that draw random numbers would need the state of the generator.
bool IsRandom(const c10::FunctionSchema& schema) {
  const auto op = c10::Dispatcher::singleton().findOp(schema.operator_name());
  return op.has_value() && op->hasTag(at::Tag::nondeterministic_seeded);
}

void WriteOrigin(const PossibleOrigin& origin, const std::string& run, JsonText* json) {
  const Location& place = origin.place;
  json->Key("origin").Open('{').Key("run").Text(run);
  json->Key("ticket").Integer(static_cast<int64_t>(origin.header.ticket));
  json->Key("op").Text(origin.op);
  json->Key("class").Text(ClassName(origin.finding_class));
  json->Key("phase").Text(PhaseName(place.phase));
  json->Key("layer").Text(place.layer != nullptr ? place.layer->path : "");
  json->Key("root").Text(place.layer != nullptr ? place.layer->root : "");
  json->Key("node").Text(place.node != nullptr ? place.node : "");
  json->Close('}');
}

}  // namespace

void Capsules::Set(CapsuleSettings settings) { settings_ = std::move(settings); }

OpenCalls* Capsules::CallsOf(const ThreadState& thread) noexcept {
  if (thread.small_id >= kThreadsMax) return nullptr;
  std::atomic<OpenCalls*>& place = calls_[thread.small_id];
  OpenCalls* calls = place.load(std::memory_order_acquire);
  if (calls != nullptr) return calls;
  calls = new (std::nothrow) OpenCalls();  // as long as the process: its number is used again
  place.store(calls, std::memory_order_release);
  return calls;
}

void Capsules::OnBegin(ThreadState* thread, const Frame& frame,
                       c10::ArrayRef<const c10::IValue> arguments) noexcept try {
  OpenCalls* calls = CallsOf(*thread);
  if (calls != nullptr) calls->Begin(*thread, frame, arguments);
} catch (...) {
}

// What an unbroken row of harmed steps began with stays, whether or not the step that runs turns
// out to be one of them.
bool Capsules::MayGo(const Kept& kept) const noexcept {
  return kept.step < (harmed_ ? harmed_since_ : step_);
}

// Null: it has one that must stay, or all places are taken by such.
Capsules::Kept* Capsules::PlaceFor(const PossibleOrigin& origin) noexcept {
  if (failed_ || !IsEarlyOrRare(origin.seen)) return nullptr;
  Kept* oldest = nullptr;
  int negative = 0;
  for (Kept& kept : kept_) {
    if (kept.number == 0) {
      oldest = &kept;
      break;
    }
    if (kept.site == origin.site) return MayGo(kept) ? &kept : nullptr;
    negative += kept.only_negative ? 1 : 0;
    if (oldest == nullptr || kept.number < oldest->number) oldest = &kept;
  }
  if (origin.kinds == wire::kHasNegInf && negative >= kOnlyNegativeMax) return nullptr;
  return oldest->number == 0 || MayGo(*oldest) ? oldest : nullptr;
}

uint32_t Capsules::TakePlace(const PossibleOrigin& origin, uint32_t* replaced) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  Kept* place = PlaceFor(origin);
  if (place == nullptr) return 0;
  *replaced = place->number;
  *place = {.number = ++written_,
            .site = origin.site,
            .step = step_,
            .only_negative = origin.kinds == wire::kHasNegInf};
  return place->number;
}

// Null: it was written. Else why not.
const char* Capsules::Write(const PossibleOrigin& origin, const CallNote& call,
                            uint32_t number) const {
  CallImage image(call, origin.outputs, origin.count);
  const std::string name = NameOfRun(origin.emitter.run(), number);
  const c10::FunctionSchema& schema = *call.op->schema;
  const char* why_not = image.why_not();
  if (why_not == nullptr && image.bytes() > settings_.bytes_max) {
    why_not = "it would be larger than the limit (--capsule-limit)";
  }
  if (why_not == nullptr && IsRandom(schema)) why_not = "the op draws random numbers";
  JsonText json;
  json.Open('{').Key("schema").Text(wire::kCapsuleSchema).Key("kind").Text("op");
  json.Key("complete").Bool(why_not == nullptr);
  json.Key("why_not").Text(why_not != nullptr ? why_not : "");
  json.Key("bytes").Integer(static_cast<int64_t>(image.bytes()));
  json.Key("python").Text(settings_.python).Key("boot").Text(origin.emitter.boot_id());
  WriteOrigin(origin, name.substr(0, name.find('-')), &json);
  json.Key("op").Open('{').Key("name").Text(schema.name());
  json.Key("overload").Text(schema.overload_name()).Close('}');
  WriteTorchFlags(&json);
  std::vector<iovec> pieces;
  if (why_not == nullptr) {
    image.Describe(&json);
    pieces = image.Pieces();
  }
  json.Close('}');
  return WriteCapsule(settings_.directory.c_str(), name.c_str(), {pieces, json.text()});
}

void Capsules::OnEnd(const ThreadState& thread, const Frame& frame) noexcept {
  OpenCalls* calls = CallsOf(thread);
  if (calls != nullptr) calls->End(thread, frame);
}

void Capsules::OnPossibleOriginOnGpu() noexcept {
  if (settings_.say == nullptr || said_gpu_.exchange(true)) return;
  settings_.say("no capsule is written of an op on a GPU; --capsule op works on the CPU alone yet");
}

void Capsules::OnPossibleOrigin(const PossibleOrigin& origin) noexcept try {
  OpenCalls* calls = CallsOf(*origin.thread);
  const CallNote* call = calls != nullptr ? calls->Find(*origin.thread, origin.frame) : nullptr;
  if (call == nullptr) return;
  uint32_t replaced = 0;
  const uint32_t number = TakePlace(origin, &replaced);
  if (number == 0) return;
  const char* why_not = Write(origin, *call, number);
  if (why_not == nullptr) {
    if (replaced != 0) {
      RemoveCapsule(settings_.directory.c_str(), NameOfRun(origin.emitter.run(), replaced).c_str());
    }
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    failed_ = true;
  }
  char line[192];
  (void)std::snprintf(line, sizeof line, "no capsule is written: %s (%.80s)", why_not,
                      settings_.directory.c_str());
  if (settings_.say != nullptr) settings_.say(line);
} catch (...) {
}

void Capsules::OnStep(bool harmed) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (harmed && !harmed_) harmed_since_ = step_;
  harmed_ = harmed;
  ++step_;
}

}  // namespace nanwatch
