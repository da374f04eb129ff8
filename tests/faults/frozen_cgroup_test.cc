// SPDX-License-Identifier: Apache-2.0
// Fault 13: the kernel freezes a job, or the job and its daemon, as a container that is paused or a
// machine that is suspended. Nobody is taken for dead, nothing is lost, and who reads does not hang.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <utility>

#include "daemon/base/directories.h"
#include "tests/faults/scene.h"

namespace nanwatch {
namespace {

constexpr int kPauseUs = 1'000;

// The deadline only ends a test that has failed.
bool Await(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    usleep(kPauseUs);
  }
  return true;
}

// A cgroup of this test's own. Version 1 and 2 do the same with other files.
class FrozenGroup {
 public:
  explicit FrozenGroup(int version) : version_(version) {
    const std::string mount = Mount(version);
    if (mount.empty()) {
      why_not_ = "no freezer of cgroup version " + std::to_string(version) + " is mounted";
      return;
    }
    path_ = mount + "/nanwatch-test-" + std::to_string(getpid());
    if (mkdir(path_.c_str(), 0755) != 0) {
      why_not_ = "no cgroup can be made in " + mount + ": " + std::strerror(errno);
      path_.clear();
    } else if (access((path_ + "/" + Switch()).c_str(), W_OK) != 0) {
      why_not_ = path_ + " cannot be frozen: " + std::strerror(errno);
    }
  }
  FrozenGroup(const FrozenGroup&) = delete;
  FrozenGroup& operator=(const FrozenGroup&) = delete;
  // After its processes have ended.
  ~FrozenGroup() {
    if (!path_.empty()) (void)Await([this] { return rmdir(path_.c_str()) == 0 || errno != EBUSY; });
  }

  [[nodiscard]] const std::string& why_not() const { return why_not_; }
  [[nodiscard]] bool Take(pid_t process) const {
    return Write("cgroup.procs", std::to_string(process));
  }
  [[nodiscard]] bool Freeze() const {
    return Write(Switch(), version_ == 1 ? "FROZEN" : "1") && Await([this] { return IsFrozen(); });
  }
  [[nodiscard]] bool Thaw() const {
    return Write(Switch(), version_ == 1 ? "THAWED" : "0") && Await([this] { return !IsFrozen(); });
  }

 private:
  static std::string Mount(int version) {
    std::ifstream mounts("/proc/self/mounts");
    for (std::string line; std::getline(mounts, line);) {
      std::istringstream words(line);
      std::string device, path, type, options;
      words >> device >> path >> type >> options;
      if (version == 2 && type == "cgroup2") return path;
      if (version == 1 && type == "cgroup" &&
          ("," + options + ",").find(",freezer,") != std::string::npos)
        return path;
    }
    return "";
  }
  [[nodiscard]] std::string Switch() const {
    return version_ == 1 ? "freezer.state" : "cgroup.freeze";
  }
  [[nodiscard]] bool IsFrozen() const {
    std::ifstream file(path_ + (version_ == 1 ? "/freezer.state" : "/cgroup.events"));
    std::stringstream text;
    text << file.rdbuf();
    return text.str().find(version_ == 1 ? "FROZEN" : "frozen 1") != std::string::npos;
  }
  [[nodiscard]] bool Write(const std::string& name, const std::string& text) const {
    std::ofstream file(path_ + "/" + name);
    file << text << std::flush;
    return file.good();
  }

  int version_;
  std::string path_;
  std::string why_not_;
};

// What a job in a process of its own has done, and is to do.
struct Progress {
  std::atomic<uint64_t> asked = 0;    // findings, in all
  std::atomic<uint64_t> written = 0;  // so many of them
  std::atomic<uint64_t> dropped = 0;
  std::atomic<uint64_t> unread = 0;  // slots
};

class FrozenCgroupTest : public FaultTest, public testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    group_ = std::make_unique<FrozenGroup>(GetParam());
    if (!group_->why_not().empty()) GTEST_SKIP() << "NOT TESTED: " << group_->why_not();
    void* shared =
        mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    progress_ = new (shared) Progress;
    job_ = InGroup([this] { WriteAsAsked(); });
  }
  // A frozen process of version 1 ends when it is thawed.
  void TearDown() override {
    if (progress_ == nullptr) return;
    EXPECT_TRUE(group_->Thaw());
    End(job_);
    munmap(progress_, sizeof(Progress));
  }
  pid_t InGroup(const std::function<void()>& work) {
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      work();
      _exit(1);
    }
    EXPECT_TRUE(group_->Take(child));
    return child;
  }
  void WriteAsAsked() {
    SegmentBuilder job(options_.segment_dir, {.nonce = 1});
    while (true) {
      while (progress_->written < progress_->asked) {
        job.WriteValue("aten::log", "a");
        ++progress_->written;
        progress_->dropped = job.dropped();
      }
      job.Publish();
      progress_->unread = job.ring().reserved_slots.load() - job.ring().released_slots.load();
      usleep(kPauseUs);
    }
  }
  void LiveAsDaemon() {
    const SystemClock clock;
    RecordingListener listener;
    Result<Daemon> life = Daemon::Start(options_, NoVerdict, clock, listener);
    if (life.ok()) (void)life->Run(-1);
  }
  void Ask(uint64_t findings) { progress_->asked += findings; }
  [[nodiscard]] bool HasWritten() const { return progress_->written == progress_->asked; }
  static void End(pid_t& process) {
    if (process <= 0) return;
    kill(process, SIGKILL);
    waitpid(std::exchange(process, 0), nullptr, 0);
  }
  void ExpectAllIsThere() {
    const RunFacts facts = FactsOf(1);
    EXPECT_EQ(TicketsOf(1) + progress_->dropped, progress_->written);
    EXPECT_EQ(facts.state().records_dropped(), progress_->dropped);
    EXPECT_EQ(facts.state().holes(), 0u);
  }

  std::unique_ptr<FrozenGroup> group_;
  Progress* progress_ = nullptr;
  pid_t job_ = 0;
};

TEST_P(FrozenCgroupTest, AJobThatIsFrozenForHoursIsNotTakenForDead) {
  Ask(1);
  ASSERT_TRUE(Await([this] { return HasWritten(); }));
  Start();
  Tick();
  const int rounds = FaultRounds(10, 1'000);
  for (int i = 0; i < rounds; ++i) {
    Ask(static_cast<uint64_t>(10 + i % 40));  // it is frozen anywhere in between
    ASSERT_TRUE(group_->Freeze());
    const uint64_t written = progress_->written;
    for (int hour = 0; hour < 3; ++hour) Tick(3'600'000);
    EXPECT_EQ(progress_->written, written) << "it stood still";
    EXPECT_FALSE(FactsOf(1).state().ended()) << i;
    ASSERT_TRUE(group_->Thaw());
    ASSERT_TRUE(Await([this] { return HasWritten(); }));
    Tick();
  }
  Tick(1'100);
  ExpectAllIsThere();
  End(job_);
  Tick(1'100);
  EXPECT_TRUE(FactsOf(1).state().ended());
  ExpectSoundStore();
}

TEST_P(FrozenCgroupTest, FrozenTogetherBothGoOn) {
  pid_t daemon = InGroup([this] { LiveAsDaemon(); });
  const auto is_read = [this] { return HasWritten() && progress_->unread == 0; };
  Ask(1);
  ASSERT_TRUE(Await(is_read));
  const int rounds = FaultRounds(5, 200);
  for (int i = 0; i < rounds; ++i) {
    Ask(static_cast<uint64_t>(10 + i % 40));
    ASSERT_TRUE(group_->Freeze());
    // Others are refused and may read meanwhile.
    Result<Daemon> second = Daemon::Start(options_, NoVerdict, clock_, listener_);
    EXPECT_EQ(second.status().kind(), ErrorKind::kBusy) << i;
    const Result<Store> reading = Store::OpenForReading(DatabasePath(options_.state_dir));
    ASSERT_TRUE(reading.ok()) << reading.status().message();
    const Result<RunFacts> facts = reading->Facts(RunId(1));
    ASSERT_TRUE(facts.ok()) << facts.status().message();
    EXPECT_FALSE(facts->state().ended());
    ASSERT_TRUE(group_->Thaw());
    ASSERT_TRUE(Await(is_read)) << i;
  }
  End(daemon);
  Start();
  Tick(1'100);
  EXPECT_FALSE(FactsOf(1).state().ended());
  ExpectAllIsThere();
  ExpectSoundStore();
}

INSTANTIATE_TEST_SUITE_P(Version, FrozenCgroupTest, testing::Values(1, 2));

}  // namespace
}  // namespace nanwatch
