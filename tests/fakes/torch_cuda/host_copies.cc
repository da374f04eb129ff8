// SPDX-License-Identifier: Apache-2.0
#include "tests/fakes/torch_cuda/host_copies.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <new>

#include "tests/fakes/cuda/fake_cuda.h"
#include "tests/fakes/torch_cuda/fake_device.h"

namespace nanwatch::fake {
namespace {

struct Copy {
  char* to = nullptr;
  std::vector<char> values;
  bool shown = false;

  bool Overlaps(const char* begin, size_t bytes) const {
    return begin < to + values.size() && to < begin + bytes;
  }
  void Show() {
    std::copy(values.begin(), values.end(), to);
    shown = true;
  }
  void Hide() {
    std::memset(to, 0xff, values.size());
    shown = false;
  }
};

// Never destroyed: the device goes on while the process ends.
struct Host {
  std::recursive_mutex lock;
  std::list<Copy*> under_way;  // in the order in which they were begun
  std::map<const char*, size_t> blocks;
  std::map<size_t, std::vector<void*>> free;
};
Host& host() {
  static auto* object = new Host;
  return *object;
}

// What is on its way to these bytes goes nowhere; the stream still comes by its record.
void Forget(const char* begin, size_t bytes) {
  host().under_way.remove_if([&](Copy* copy) {
    if (!copy->Overlaps(begin, bytes)) return false;
    copy->to = nullptr;
    return true;
  });
}

void Arrive(void* context) {
  auto* copy = static_cast<Copy*>(context);
  const std::lock_guard<std::recursive_mutex> guard(host().lock);
  if (copy->to != nullptr) {
    copy->Show();
    host().under_way.remove(copy);
  }
  delete copy;
}

void GiveBack(void* memory) {
  const std::lock_guard<std::recursive_mutex> guard(host().lock);
  const size_t bytes = host().blocks.at(static_cast<const char*>(memory));
  Forget(static_cast<const char*>(memory), bytes);
  host().free[bytes].push_back(memory);
}

class Pinned final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::Device(c10::kCPU)};
    const size_t rounded = (bytes + 511) / 512 * 512;
    const std::lock_guard<std::recursive_mutex> guard(host().lock);
    std::vector<void*>& free = host().free[rounded];
    void* memory = nullptr;
    if (!free.empty()) {
      memory = free.back();
      free.pop_back();
    } else if (memory = std::aligned_alloc(512, rounded); memory == nullptr) {
      throw std::bad_alloc();
    }
    host().blocks[static_cast<const char*>(memory)] = rounded;
    return {memory, memory, &GiveBack, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &GiveBack; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

char* BytesOf(const at::Tensor& tensor) { return static_cast<char*>(tensor.data_ptr()); }

}  // namespace

c10::Allocator* PinnedAllocator() {
  static auto* allocator = new Pinned;
  return allocator;
}

bool IsPinned(const void* address) {
  const auto* byte = static_cast<const char*>(address);
  const std::lock_guard<std::recursive_mutex> guard(host().lock);
  const auto after = host().blocks.upper_bound(byte);
  return after != host().blocks.begin() &&
         byte < std::prev(after)->first + std::prev(after)->second;
}

bool IsPinnedRun(const at::Tensor& on_cpu) {
  return on_cpu.is_contiguous() && on_cpu.nbytes() != 0 && IsPinned(on_cpu.data_ptr());
}

void BeginCopyTo(const at::Tensor& to) {
  if (!IsPinnedRun(to)) return;
  const std::lock_guard<std::recursive_mutex> guard(host().lock);
  Forget(BytesOf(to), to.nbytes());
}

void ArriveLater(const at::Tensor& to) {
  auto* copy = new Copy;
  {
    const std::lock_guard<std::recursive_mutex> guard(host().lock);
    copy->to = BytesOf(to);
    copy->values.assign(BytesOf(to), BytesOf(to) + to.nbytes());
    copy->Hide();
    host().under_way.push_back(copy);
  }
  fake_cuda_launch_host(CurrentStreamHandle(), &Arrive, copy);
}

ReadByDevice::ReadByDevice(const std::vector<at::Tensor>& on_cpu) : lock_(host().lock) {
  for (Copy* copy : host().under_way) {
    const bool is_read = std::any_of(on_cpu.begin(), on_cpu.end(), [copy](const at::Tensor& one) {
      return IsPinnedRun(one) && copy->Overlaps(BytesOf(one), one.nbytes());
    });
    if (is_read) copy->Show();
    any_ |= is_read;
  }
  if (!any_) lock_.unlock();
}

ReadByDevice::~ReadByDevice() {
  if (!any_) return;
  for (Copy* copy : host().under_way) {
    if (copy->shown) copy->Hide();
  }
}

}  // namespace nanwatch::fake
