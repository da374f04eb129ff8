// SPDX-License-Identifier: Apache-2.0
#include "tools/inject/hook.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>

extern "C" {
extern const std::byte nanwatch_payload_begin[];
extern const std::byte nanwatch_payload_end[];
}

namespace nanwatch {
namespace {

static_assert(sizeof(PayloadBlock) == NANWATCH_BLOCK_BYTES);
static_assert(offsetof(PayloadBlock, permission) == NANWATCH_BLOCK_PERMISSION);
static_assert(offsetof(PayloadBlock, pid) == NANWATCH_BLOCK_PID);
static_assert(offsetof(PayloadBlock, tool) == NANWATCH_BLOCK_TOOL);
static_assert(offsetof(PayloadBlock, dlopen) == NANWATCH_BLOCK_DLOPEN);
static_assert(offsetof(PayloadBlock, dlsym) == NANWATCH_BLOCK_DLSYM);
static_assert(offsetof(PayloadBlock, dlerror) == NANWATCH_BLOCK_DLERROR);
static_assert(offsetof(PayloadBlock, errno_location) == NANWATCH_BLOCK_ERRNO);
static_assert(offsetof(PayloadBlock, library) == NANWATCH_BLOCK_LIBRARY);
static_assert(offsetof(PayloadBlock, symbol) == NANWATCH_BLOCK_SYMBOL);
static_assert(offsetof(PayloadBlock, level) == NANWATCH_BLOCK_LEVEL);
static_assert(offsetof(PayloadBlock, directory) == NANWATCH_BLOCK_DIRECTORY);
static_assert(offsetof(PayloadBlock, answers) == NANWATCH_BLOCK_ANSWERS);
static_assert(offsetof(PayloadBlock, answer) == NANWATCH_BLOCK_ANSWER);
static_assert(offsetof(PayloadBlock, lent) == NANWATCH_BLOCK_LENT);
static_assert(offsetof(PayloadBlock, add_pending) == NANWATCH_BLOCK_ADD_PENDING);
static_assert(offsetof(PayloadBlock, pending) == NANWATCH_BLOCK_PENDING);
static_assert(offsetof(PayloadBlock, xsave_bytes) == NANWATCH_BLOCK_XSAVE_BYTES);
static_assert(offsetof(PayloadBlock, mxcsr) == NANWATCH_BLOCK_MXCSR);
static_assert(offsetof(PayloadBlock, error) == NANWATCH_BLOCK_ERROR);
static_assert(offsetof(PayloadBlock, texts_bytes) == NANWATCH_BLOCK_TEXTS_BYTES);

constexpr char kEntryFunction[] = "nanwatch_entry_attach";
// The texts of the next tool may be a little longer: its process id is in one.
constexpr size_t kTextsToSpare = 64;

std::span<const std::byte> Payload() { return {nanwatch_payload_begin, nanwatch_payload_end}; }

uint32_t EntryOffset(size_t field) {
  uint32_t offset = 0;
  memcpy(&offset, Payload().data() + field, sizeof offset);
  return offset;
}

}  // namespace

std::optional<uint64_t> Hook::FindPayload(const Room& room, uint64_t function) {
  for (const uint64_t at : room.Marked(NANWATCH_HOOK_MAGIC)) {
    std::vector<std::byte> bytes(Payload().size());
    if (!memory_->Read(at, bytes)) continue;
    uint64_t block = 0, original = 0;
    memcpy(&block, bytes.data() + NANWATCH_PAYLOAD_BLOCK, sizeof block);
    memcpy(&original, bytes.data() + NANWATCH_PAYLOAD_ORIGINAL, sizeof original);
    // Of the same version: all behind the addresses is the same.
    if (original == function && (block_ == 0 || block == block_) &&
        std::equal(bytes.begin() + NANWATCH_PAYLOAD_HOOK, bytes.end(),
                   Payload().begin() + NANWATCH_PAYLOAD_HOOK)) {
      block_ = block;
      return at;
    }
  }
  return std::nullopt;
}

std::optional<uint64_t> Hook::PlacePayload(Room& room, uint64_t function) {
  if (block_ == 0) block_ = room.Take(sizeof(PayloadBlock), Room::Use::kData).value_or(0);
  if (block_ == 0) return std::nullopt;
  std::vector<std::byte> bytes(Payload().begin(), Payload().end());
  memcpy(bytes.data() + NANWATCH_PAYLOAD_BLOCK, &block_, sizeof block_);
  memcpy(bytes.data() + NANWATCH_PAYLOAD_ORIGINAL, &function, sizeof function);
  return room.Place(bytes, Room::Use::kCode);
}

bool Hook::PlaceBlock(Room& room, PayloadBlock content, const LateCall& call) {
  const std::optional<PayloadBlock> before = Read();
  if (!before || before->state == NANWATCH_STATE_CLAIMED || before->state == NANWATCH_STATE_RUNNING)
    return false;
  std::string texts;
  std::array<size_t, 5> at{};
  size_t n = 0;
  for (const std::string& text :
       {call.library, std::string(kEntryFunction), call.level, call.directory, call.answers}) {
    at[n++] = texts.size();
    texts += text + '\0';
  }
  content.library = before->library;
  content.texts_bytes = before->texts_bytes;
  if (content.texts_bytes < texts.size()) {
    const size_t bytes = texts.size() + kTextsToSpare;
    content.library = room.Take(bytes, Room::Use::kText).value_or(0);
    content.texts_bytes = static_cast<uint32_t>(bytes);
  }
  if (content.library == 0 || !memory_->Write(content.library, std::as_bytes(std::span(texts))))
    return false;
  content.symbol = content.library + at[1];
  content.level = content.library + at[2];
  content.directory = content.library + at[3];
  content.answers = content.library + at[4];
  // A thread may be in the payload, for an earlier tool: it must see no permission before all else
  // is there. Whether one is on loan is for that thread to say.
  const auto bytes = std::as_bytes(std::span(&content, 1));
  const auto write = [&](size_t from, size_t to) {
    return memory_->Write(block_ + from, bytes.subspan(from, to - from));
  };
  return write(NANWATCH_BLOCK_PID, NANWATCH_BLOCK_LENT) &&
         write(NANWATCH_BLOCK_ADD_PENDING, NANWATCH_BLOCK_BYTES) &&
         write(NANWATCH_BLOCK_PERMISSION, NANWATCH_BLOCK_PID) &&
         write(NANWATCH_BLOCK_STATE, NANWATCH_BLOCK_PERMISSION);
}

std::optional<Hook> Hook::Place(TargetMemory& memory, Room& room, int pid,
                                const JobFunctions& functions, const LateCall& call,
                                uint32_t xsave_bytes) {
  Hook hook(memory);
  std::map<uint64_t, uint64_t> payloads;  // by the function that each goes on to
  for (const CallSlot& slot : functions.slots) {
    auto payload = payloads.find(slot.function);
    if (payload == payloads.end()) {
      std::optional<uint64_t> at = hook.FindPayload(room, slot.function);
      if (!at) at = hook.PlacePayload(room, slot.function);
      if (!at) return std::nullopt;
      payload = payloads.emplace(slot.function, *at).first;
      hook.payload_ = *at;
    }
    hook.hooked_.push_back({slot, payload->second + EntryOffset(NANWATCH_PAYLOAD_HOOK)});
  }
  if (const uint32_t offset = EntryOffset(NANWATCH_PAYLOAD_BORROWED);
      offset != 0 && functions.add_pending_call != 0)
    hook.borrowed_entry_ = hook.payload_ + offset;
  const PayloadBlock content = {
      .pid = pid,
      .tool = getpid(),
      .dlopen = functions.dlopen,
      .dlsym = functions.dlsym,
      .dlerror = functions.dlerror,
      .errno_location = functions.errno_location,
      .add_pending = functions.add_pending_call,
      .pending = hook.payload_ + EntryOffset(NANWATCH_PAYLOAD_PENDING),
      .xsave_bytes = xsave_bytes,
  };
  if (!hook.PlaceBlock(room, content, call)) return std::nullopt;
  return hook;
}

bool Hook::Set() {
  for (const Hooked& hooked : hooked_) {
    if (!memory_->Put(hooked.slot.address, hooked.entry)) return false;
  }
  return true;
}

void Hook::Remove() {
  // A write that fails means that the process has ended.
  (void)memory_->Put(block_ + NANWATCH_BLOCK_PERMISSION, uint32_t{0});
  for (const Hooked& hooked : hooked_) {
    if (memory_->Get<uint64_t>(hooked.slot.address) == hooked.entry)
      (void)memory_->Put(hooked.slot.address, hooked.slot.function);
  }
}

std::optional<PayloadBlock> Hook::Read() const { return memory_->Get<PayloadBlock>(block_); }

void Hook::Rearm() {
  (void)memory_->Put(block_ + NANWATCH_BLOCK_STATE, uint32_t{NANWATCH_STATE_ARMED});
}

bool Hook::PrepareLoan(uint64_t resume) {
  return memory_->Put(payload_ + NANWATCH_PAYLOAD_RESUME, resume) &&
         memory_->Put(block_ + NANWATCH_BLOCK_LENT, uint32_t{1});
}

}  // namespace nanwatch
