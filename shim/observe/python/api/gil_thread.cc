// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/python/api/gil_thread.h"

#include <time.h>

#include <atomic>
#include <memory>
#include <new>

#include "shim/host/done_within.h"
#include "shim/host/quiet_thread.h"

namespace nanwatch {
namespace {

enum class Progress { kAsked, kBegun, kDone, kGivenUp };

// Owned by both threads: the one that asked may be gone when the other has the GIL at last.
struct Request {
  const PythonApi& api;
  void (*fn)(void* context);
  void* context;
  std::atomic<Progress> progress{Progress::kAsked};

  [[nodiscard]] bool MoveOn(Progress from, Progress to) noexcept {
    return progress.compare_exchange_strong(from, to);
  }
};

// Also where Python ends the thread in the middle.
struct AtEnd {
  explicit AtEnd(Request& of) : request(of) {}
  ~AtEnd() { request.progress.store(Progress::kDone, std::memory_order_release); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;
  Request& request;
};

// Python ends a thread that asks for the GIL while it ends itself, from below: nothing here may be
// noexcept.
void* Serve(void* shared) {
  const std::unique_ptr<std::shared_ptr<Request>> owned(
      static_cast<std::shared_ptr<Request>*>(shared));
  Request& request = **owned;
  const Gil held(request.api);
  if (!request.MoveOn(Progress::kAsked, Progress::kBegun)) return nullptr;
  const AtEnd done{request};
  request.fn(request.context);
  return nullptr;
}

}  // namespace

bool CallWithGil(const PythonApi& api, int milliseconds, void (*fn)(void* context),
                 void* context) noexcept try {
  if (!api.Running()) return false;
  if (api.PyGILState_GetThisThreadState() != nullptr && api.PyGILState_Check() != 0) {
    const Gil held(api);  // keeps an error that is pending
    fn(context);
    return true;
  }
  const std::shared_ptr<Request> request(new Request{api, fn, context});
  auto for_thread = std::make_unique<std::shared_ptr<Request>>(request);
  if (!StartQuietThread(&Serve, for_thread.get())) return false;
  (void)for_thread.release();  // the thread has it
  const auto begun = [&] { return request->progress.load() != Progress::kAsked; };
  if (!DoneWithin(milliseconds, begun) && request->MoveOn(Progress::kAsked, Progress::kGivenUp)) {
    return false;
  }
  constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 100'000};
  while (request->progress.load(std::memory_order_acquire) != Progress::kDone) {
    nanosleep(&kPause, nullptr);
  }
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

}  // namespace nanwatch
