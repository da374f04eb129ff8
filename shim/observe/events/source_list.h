// SPDX-License-Identifier: Apache-2.0
// What an op's bad result came from, as a list in the making.
#pragma once

#include <cstdint>

#include "proto/wire/record.h"
#include "shim/classify/bad_values.h"
#include "shim/observe/thread/thread_state.h"

namespace nanwatch {

struct Sources {
  wire::Source list[wire::kSourcesMax];
  uint64_t index[wire::kSourcesMax];
  int count = 0;
  uint8_t kinds = 0;
  // An input that only a kernel of the open compiled region can have written.
  bool made_in_region = false;
  // One that came in, as far as anybody knows, is a result of an op to autograd.
  bool came_in_by_result = false;
  bool assumed = false;  // one of them is what is likely, not what is known
  // Nobody read what the op was given: they are what was bad in memory then.
  bool unread = false;

  void Add(const wire::Source& source, uint64_t recent_index) {
    kinds |= source.kinds;
    for (int i = 0; i < count; ++i) {
      if (list[i].kind == source.kind && list[i].value == source.value &&
          list[i].name == source.name) {
        return;
      }
    }
    if (count == wire::kSourcesMax) return;
    list[count] = source;
    index[count++] = recent_index;
  }
  void AddAll(const Sources& others) {
    for (int i = 0; i < others.count; ++i) Add(others.list[i], others.index[i]);
  }
  // Of those that other arguments than this one have brought.
  [[nodiscard]] uint8_t KindsBeside(uint8_t input) const {
    uint8_t beside = 0;
    for (int i = 0; i < count; ++i) beside |= list[i].input != input ? list[i].kinds : 0;
    return beside;
  }
  // What came in by this argument of the op is no source of it, where there is another one.
  void DropExternalOf(uint8_t input) {
    int kept = 0;
    for (int i = 0; i < count; ++i) {
      const bool drop = list[i].input == input &&
                        list[i].kind == static_cast<uint8_t>(wire::SourceKind::kExternal);
      if (drop && (kept != 0 || i + 1 < count)) continue;
      list[kept] = list[i];
      index[kept++] = index[i];
    }
    count = kept;
  }
};

// What can be told, after the fact, of the inputs of an op that were not asked for (gpu/op_batches.h).
struct Traced {
  Sources sources;
  bool complete = true;  // else it may have read, or not have read, more than is known
};

// About an op that has left something bad, after ops whose results were read in part only
// (level/sampling.h). No doubt is left where its inputs were seen.
struct Doubt {
  Sources suspects;      // bad values that it may have read
  bool unknown = false;  // it may have read what nobody has read in full
};

// What the op that is ending has written itself; nothing on a thread without Python, where a
// process group unpacks what it received.
struct OwnWrites {
  const BadOutput* outputs;
  int count;
};

wire::Source SourceFrom(const BadEntry& entry) noexcept;
// Nobody knows where what went in came from.
wire::Source UnknownSource(uint8_t kinds) noexcept;

}  // namespace nanwatch
