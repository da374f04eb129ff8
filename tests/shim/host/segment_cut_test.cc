// SPDX-License-Identifier: Apache-2.0
// A segment's file is cut short or written over under a running job: no store ends the job, and the
// segment is made anew. Whatever else a SIGBUS may be is none of our business.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "proto/wire/ring.h"
#include "tests/shim/host/segment_place.h"

namespace nanwatch {
namespace {

// How a child that runs `body` ends: "exit N" or "signal N".
std::string EndOf(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit " + std::to_string(WEXITSTATUS(status));
}

class CutSegment : public testing::Test {
 protected:
  CutSegment() { EXPECT_NE(segment_, nullptr) << place_.report().message; }

  // Stores to every page that has been made, from `threads` threads, for as long as `cut` takes.
  void StoreWhile(const std::function<void()>& cut) {
    std::atomic<bool> stop{false};
    std::atomic<int> rounds{0};
    wire::RingWriter ring(segment_->ring(), segment_->slots(), segment_->layout().ring_slots,
                          segment_->room(Room::kRing));
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        wire::KillRecord record{};
        record.header.kind = static_cast<uint16_t>(wire::RecordKind::kKill);
        record.header.bytes = sizeof record;
        while (!stop) {
          (void)ring.Write(&record, sizeof record);
          segment_->live().ops_seen.fetch_add(1);
          segment_->steps()->written.fetch_add(1);
          segment_->stats()->written.fetch_add(1);
          std::atomic_ref(segment_->reach()[0].ticket).store(1);
          ++rounds;
        }
      });
    }
    while (rounds < 100) std::this_thread::yield();
    cut();
    const int before = rounds;
    while (rounds < before + 1000) std::this_thread::yield();
    stop = true;
    for (std::thread& thread : threads) thread.join();
  }

  void ExpectMadeAnew() {
    EXPECT_FALSE(segment_->StillThere());
    EXPECT_TRUE(segment_->ContentIsLost());
    const uint64_t nonce = segment_->header().nonce;
    const SegmentReport report = segment_->Remake();
    ASSERT_TRUE(report.ok) << report.message;
    EXPECT_THAT(report.message, testing::HasSubstr("cut short or overwritten"));
    EXPECT_TRUE(segment_->StillThere());
    EXPECT_FALSE(segment_->ContentIsLost());
    struct stat status {};
    ASSERT_EQ(stat(segment_->path(), &status), 0);
    EXPECT_EQ(static_cast<uint64_t>(status.st_size), segment_->header().file_bytes);
    EXPECT_EQ(segment_->header().magic, wire::kSegmentMagic);
    (void)nonce;
    segment_->live().tickets = 7;  // what is written from now on is in the file
    std::ifstream file(segment_->path(), std::ios::binary);
    file.seekg(reinterpret_cast<const char*>(&segment_->live().tickets) -
               reinterpret_cast<const char*>(&segment_->header()));
    uint64_t word = 0;
    file.read(reinterpret_cast<char*>(&word), sizeof word);
    EXPECT_EQ(word, 7u);
  }

  SegmentPlace place_;
  Segment* segment_ = place_.Create(kSegmentLayout);
};

TEST_F(CutSegment, ToNothingWhileThreadsWriteIsMadeAnew) {
  StoreWhile([&] { std::ofstream(segment_->path(), std::ios::trunc); });
  ExpectMadeAnew();
}

TEST_F(CutSegment, ToHalfWhileThreadsWriteIsMadeAnew) {
  StoreWhile([&] {
    ASSERT_EQ(truncate(segment_->path(), static_cast<off_t>(segment_->header().file_bytes / 2)), 0);
  });
  ExpectMadeAnew();
}

TEST_F(CutSegment, ThatNothingWasStoredToSinceIsMadeAnewToo) {
  ASSERT_EQ(truncate(segment_->path(), 100), 0);
  ExpectMadeAnew();
}

TEST_F(CutSegment, ThatAnotherFileWasCopiedOverIsMadeAnew) {
  const uint64_t bytes = segment_->header().file_bytes;
  StoreWhile([&] {
    std::ofstream other(segment_->path(), std::ios::binary | std::ios::trunc);
    const std::string line = "not a segment at all, and as long as one ";
    for (uint64_t written = 0; written < bytes; written += line.size()) other << line;
  });
  ExpectMadeAnew();
}

TEST_F(CutSegment, AgainAndAgainIsMadeAnewEachTime) {
  for (int i = 0; i < 3; ++i) {
    StoreWhile([&] { std::ofstream(segment_->path(), std::ios::trunc); });
    ExpectMadeAnew();
  }
}

// ---- what is not ours

// A program's own file, cut short under its mapping.
volatile char* BrokenMemory() {
  char name[] = "/dev/shm/nanwatch-test-XXXXXX";
  const int fd = mkstemp(name);
  unlink(name);
  if (ftruncate(fd, 8192) != 0) _exit(99);
  void* memory = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED || ftruncate(fd, 0) != 0) _exit(99);
  return static_cast<volatile char*>(memory);
}

void ExitWith42(int /*signal*/) { _exit(42); }
void ExitWithCode(int /*signal*/, siginfo_t* info, void* context) {
  _exit(context == nullptr ? 98 : info->si_code);
}
volatile sig_atomic_t calls = 0;
void CountCall(int /*signal*/) { calls = calls + 1; }

void Install(void (*handler)(int), int flags, struct sigaction* before = nullptr) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(SIGBUS, &action, before);
}
void Install(void (*handler)(int, siginfo_t*, void*), int flags) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = flags | SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

// As faulthandler does: puts back what it found, and raises again.
struct sigaction found_before;
void PutBackAndRaise(int signal) {
  calls = calls + 1;
  if (calls > 3) _exit(97);  // a circle
  sigaction(signal, &found_before, nullptr);
  raise(signal);
}

struct BusCase {
  const char* name;
  void (*before)();  // what the program does before there is a segment
  void (*after)();   // and after it
  void (*end)();
};

// Each ends as it does without us.
const BusCase kBusCases[] = {
    {"ByDefault", [] {}, [] {}, [] { *BrokenMemory() = 1; }},
    {"RaisedByDefault", [] {}, [] {}, [] { raise(SIGBUS); }},
    {"SentByDefault", [] {}, [] {},
     [] {
       kill(getpid(), SIGBUS);
       pause();
     }},
    {"HandledBefore", [] { Install(&ExitWith42, 0); }, [] {}, [] { *BrokenMemory() = 1; }},
    {"HandledAfter", [] {}, [] { Install(&ExitWith42, 0); }, [] { *BrokenMemory() = 1; }},
    {"WithInformation", [] { Install(&ExitWithCode, 0); }, [] {}, [] { *BrokenMemory() = 1; }},
    {"RaisedAndHandled", [] { Install(&ExitWith42, SA_RESTART); }, [] {}, [] { raise(SIGBUS); }},
    {"RaisedWithInformation", [] { Install(&ExitWithCode, 0); }, [] {},
     [] { kill(getpid(), SIGBUS); }},
    {"HandledOnce", [] { Install(&CountCall, SA_RESETHAND); }, [] {},
     [] {
       raise(SIGBUS);
       if (calls != 1) _exit(96);
       raise(SIGBUS);
     }},
    {"HandledEachTime", [] { Install(&CountCall, 0); }, [] {},
     [] {
       raise(SIGBUS);
       raise(SIGBUS);
       _exit(calls);
     }},
    {"PutBackBefore", [] { Install(&PutBackAndRaise, SA_NODEFER, &found_before); }, [] {},
     [] { *BrokenMemory() = 1; }},
    {"PutBackAfter", [] {}, [] { Install(&PutBackAndRaise, SA_NODEFER, &found_before); },
     [] { *BrokenMemory() = 1; }},
    {"PutBackAndRaised", [] {}, [] { Install(&PutBackAndRaise, 0, &found_before); },
     [] { raise(SIGBUS); }},
    {"Ignored", [] { Install(SIG_IGN, 0); }, [] {},
     [] {
       raise(SIGBUS);
       _exit(5);
     }},
    {"IgnoredAndTouched", [] { Install(SIG_IGN, 0); }, [] {}, [] { *BrokenMemory() = 1; }},
    {"Blocked", [] {}, [] {},
     [] {
       sigset_t bus;
       sigemptyset(&bus);
       sigaddset(&bus, SIGBUS);
       sigprocmask(SIG_BLOCK, &bus, nullptr);
       raise(SIGBUS);
       int signal = 0;
       sigwait(&bus, &signal);
       _exit(signal);
     }},
};

class OtherBusError : public testing::TestWithParam<BusCase> {};

TEST_P(OtherBusError, EndsTheProcessAsItWouldWithoutUs) {
  const BusCase& bus = GetParam();
  const std::string bare = EndOf([&] {
    signal(SIGBUS, SIG_DFL);
    bus.before();
    bus.after();
    bus.end();
  });
  const std::string watched = EndOf([&] {
    signal(SIGBUS, SIG_DFL);
    bus.before();
    SegmentPlace place;
    Segment* segment = place.Create();
    if (segment == nullptr) _exit(90);
    bus.after();
    if (!segment->StillThere()) _exit(91);  // looks whether our handler is in front
    bus.end();
  });
  EXPECT_EQ(watched, bare);
}

// And our own is mended whatever the program has installed.
TEST_P(OtherBusError, OfOursIsMendedBesideTheProgramsHandler) {
  const BusCase& bus = GetParam();
  if (std::string(bus.name).starts_with("Ignored")) GTEST_SKIP() << "left alone: no guard then";
  EXPECT_EQ(EndOf([&] {
              signal(SIGBUS, SIG_DFL);
              bus.before();
              SegmentPlace place;
              Segment* segment = place.Create();
              if (segment == nullptr) _exit(90);
              bus.after();
              if (!segment->StillThere()) _exit(91);
              if (truncate(segment->path(), 0) != 0) _exit(92);
              segment->live().ops_seen.store(3);
              if (segment->live().ops_seen.load() != 3) _exit(93);
              if (segment->StillThere() || !segment->Remake().ok) _exit(94);
              _exit(calls == 0 ? 0 : 95);
            }),
            "exit 0");
}

INSTANTIATE_TEST_SUITE_P(Programs, OtherBusError, testing::ValuesIn(kBusCases),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace nanwatch
