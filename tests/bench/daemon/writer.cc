// SPDX-License-Identifier: Apache-2.0
// Jobs as a daemon sees them, without torch: segments that are written through the job's own classes
// of proto/wire, at a pace that is asked for. See README.md.
//
//   daemon_load_writer --dir DIR [--runs N] [--rate RECORDS_A_SECOND] [--records N] [--seconds S]
//                      [--job NAME] [--nonce N] [--probe-ms MS]
//
// --rate is that of all runs together, or `max`: as fast as it can. It ends after --records in all or
// --seconds, whichever comes first, and leaves its segments to the daemon, as jobs that ended do.
// --probe-ms writes a finding of run 0 so often and says so: "probe TICKET CLOCK_MONOTONIC_NS". At
// the end: "written N dropped N". "ready" is said when all segments are there.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "shim/host/locked_file.h"
#include "tests/fakes/segment_builder.h"

namespace nanwatch {
namespace {

using Clock = std::chrono::steady_clock;

// As a diverged model: so many places, a step and a heartbeat so often.
constexpr uint64_t kPlaces = 50;
constexpr std::chrono::milliseconds kStepEvery{100};
constexpr std::chrono::milliseconds kPause{1};
constexpr uint64_t kMax = ~uint64_t{0};
constexpr uint64_t kAtOnce = 256;  // records between two looks at the clock

struct Asked {
  std::string dir;
  std::string job;
  uint64_t runs = 1;
  uint64_t rate = 1000;
  uint64_t records = kMax;
  uint64_t seconds = 10;
  uint64_t nonce = 1;
  uint64_t probe_ms = 0;
};

Asked Parse(int argc, char** argv) {
  Asked asked;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view word = argv[i];
    const char* value = argv[i + 1];
    const auto number = [value] { return std::strtoull(value, nullptr, 10); };
    if (word == "--dir") asked.dir = value;
    if (word == "--job") asked.job = value;
    if (word == "--runs") asked.runs = number();
    if (word == "--rate") asked.rate = std::string_view(value) == "max" ? kMax : number();
    if (word == "--records") asked.records = number();
    if (word == "--seconds") asked.seconds = number();
    if (word == "--nonce") asked.nonce = number();
    if (word == "--probe-ms") asked.probe_ms = number();
  }
  return asked;
}

// One job's process: its segment, and the lock that says that it lives.
class Run {
 public:
  Run(const Asked& asked, uint64_t number)
      : segment_(asked.dir, {.layout = kSegmentLayout,
                             .nonce = asked.nonce + number,
                             .job = asked.job,
                             .rank = static_cast<int32_t>(number)}) {
    lock_ = open(segment_.path().c_str(), O_RDWR | O_CLOEXEC);
    if (lock_ < 0 || !Lock(lock_)) std::perror("lock");
    for (uint64_t place = 0; place < kPlaces; ++place)
      ops_.push_back("aten::op" + std::to_string(place));
  }

  uint64_t Write() {
    const uint64_t place = written_++ % kPlaces;
    return segment_.WriteValue(ops_[place], "encoder.layers.3.attention",
                               wire::FindingClass::kPropagate);
  }
  // A place of its own, and no link of a chain: a line of its own in `tail`.
  uint64_t Probe() { return segment_.WriteValue("aten::log", "probe"); }
  void Step() {
    segment_.WriteStep(1.5);
    segment_.Publish();
  }
  void End() {
    segment_.WriteEnd();
    segment_.Publish();
  }
  [[nodiscard]] uint64_t dropped() const { return segment_.dropped(); }

 private:
  SegmentBuilder segment_;
  int lock_ = -1;  // open until the process ends
  std::vector<std::string> ops_;
  uint64_t written_ = 0;
};

class Load {
 public:
  explicit Load(const Asked& asked) : asked_(asked) {
    for (uint64_t i = 0; i < asked.runs; ++i) runs_.push_back(std::make_unique<Run>(asked, i));
  }

  void Go() {
    std::puts("ready");
    std::fflush(stdout);
    begin_ = Clock::now();
    const auto end = begin_ + std::chrono::seconds(asked_.seconds);
    auto step_at = begin_;
    auto probe_at = begin_;
    for (auto now = begin_; now < end && written_ < asked_.records; now = Clock::now()) {
      if (now >= step_at) {
        for (const auto& run : runs_) run->Step();
        step_at = now + kStepEvery;
      }
      if (asked_.probe_ms > 0 && now >= probe_at) {
        WriteProbe();
        probe_at = now + std::chrono::milliseconds(asked_.probe_ms);
      }
      if (!WriteDue(now)) std::this_thread::sleep_for(kPause);
    }
    uint64_t dropped = 0;
    for (const auto& run : runs_) {
      run->End();
      dropped += run->dropped();
    }
    std::printf("written %llu dropped %llu\n", static_cast<unsigned long long>(written_),
                static_cast<unsigned long long>(dropped));
  }

 private:
  void WriteProbe() {
    const uint64_t ticket = runs_.front()->Probe();
    const auto now_ns = Clock::now().time_since_epoch().count();
    std::printf("probe %llu %lld\n", static_cast<unsigned long long>(ticket),
                static_cast<long long>(now_ns));
    std::fflush(stdout);
  }

  // What is due by `now`, of all runs in turn. False: that is written.
  bool WriteDue(Clock::time_point now) {
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const uint64_t due =
        asked_.rate == kMax
            ? asked_.records
            : std::min(asked_.records,
                       static_cast<uint64_t>(seconds * static_cast<double>(asked_.rate)));
    const uint64_t until = std::min(due, written_ + kAtOnce);
    while (written_ < until) {
      (void)runs_[written_ % runs_.size()]->Write();
      ++written_;
    }
    return written_ < due;
  }

  const Asked& asked_;
  std::vector<std::unique_ptr<Run>> runs_;
  Clock::time_point begin_;
  uint64_t written_ = 0;
};

int Main(int argc, char** argv) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  const Asked asked = Parse(argc, argv);
  if (asked.dir.empty() || asked.runs == 0) {
    std::fputs("daemon_load_writer: --dir DIR and at least one run\n", stderr);
    return 2;
  }
  Load(asked).Go();
  return 0;
}

}  // namespace
}  // namespace nanwatch

int main(int argc, char** argv) { return nanwatch::Main(argc, argv); }
