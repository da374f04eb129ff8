// SPDX-License-Identifier: Apache-2.0
// One op call as it can be made again: its arguments, the memory that they reach, and what it left
// bad. Borrows all memory: to be written while the op's callback still runs.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shim/observe/capsule/json_text.h"
#include "shim/observe/capsule/open_calls.h"

namespace nanwatch {

class CallImage {
 public:
  // An op has ended, and left these bad. May throw for lack of memory.
  CallImage(const CallNote& call, const BadOutput* outputs, int count);

  // Why the call cannot be made again, for a person; null: it can.
  [[nodiscard]] const char* why_not() const { return why_not_; }
  // How much there is to write.
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

  // Adds the keys arguments, tensors, storages and outputs.
  void Describe(JsonText* json) const;
  // A file in the format safetensors: the bytes of storages and of bad outputs.
  [[nodiscard]] std::vector<iovec> Pieces();

 private:
  struct Storage {
    const c10::StorageImpl* storage;
    Reach reach;        // of all tensors in it
    bool lost = false;  // an argument was overwritten, and nobody kept what it was
    std::vector<BeforeImage> images;
  };
  struct Output {
    const BadOutput* bad;
    int argument_tensor = -1;  // the place of the argument that is it
    std::unique_ptr<unsigned char[]> data;
    uint64_t bytes = 0;
  };

  template <class Each>
  void ForEachWritten(uint64_t arguments, Each each) const;
  [[nodiscard]] bool Is(uint32_t place, const PlainTensor& plain) const;
  void AddTensor(uint32_t place);
  void AddWritten();
  [[nodiscard]] bool HasImage(uint32_t place) const;
  // Of a tensor that is defined.
  [[nodiscard]] Storage& StorageOf(uint32_t place) {
    return storages_[static_cast<size_t>(storage_of_[place])];
  }
  void AddOutputs(const BadOutput* outputs, int count);
  void DescribeArguments(JsonText* json) const;
  void DescribeTensors(JsonText* json) const;
  void DescribeStorages(JsonText* json) const;
  void DescribeOutputs(JsonText* json) const;
  void AddHeader();
  void AddStoragePieces(const Storage& storage, std::vector<iovec>* pieces) const;

  const CallNote& call_;
  const char* why_not_ = nullptr;
  uint64_t bytes_ = 0;
  std::vector<int> storage_of_;  // by a tensor's place in the note; -1: undefined
  std::vector<Storage> storages_;
  std::vector<Output> outputs_;
  std::string header_;
};

}  // namespace nanwatch
