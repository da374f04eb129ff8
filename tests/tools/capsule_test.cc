// SPDX-License-Identifier: Apache-2.0
#include "tools/capsule/capsule.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "daemon/ingest/writer_liveness.h"
#include "proto/wire/capsule.h"
#include "shim/host/capsule_folder.h"
#include "tests/tools/temporary_directory.h"
#include "tools/capsule/completion.h"
#include "tools/capsule/job_capsules.h"

namespace nanwatch {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr char kRun[] = "0123456789abcdef";

// A file of this many bytes of tensors.
std::string Tensors(size_t bytes) {
  std::string header =
      Json{{"storage.0", {{"dtype", "U8"}, {"shape", {bytes}}, {"data_offsets", {0, bytes}}}}}
          .dump();
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header +
         std::string(bytes, 'x');
}

std::string Manifest(const std::string& run, int ticket, const std::string& op) {
  return Json{{"schema", wire::kCapsuleSchema},
              {"complete", true},
              {"why_not", ""},
              {"python", ""},
              {"boot", HostIdentity::Current().boot_id},
              {"origin",
               {{"run", run}, {"ticket", ticket}, {"op", op}, {"phase", "forward"}, {"layer", ""}}},
              {"torch", {{"version", "2.11.0"}}}}
      .dump();
}

class CapsuleTest : public testing::Test {
 protected:
  [[nodiscard]] std::string directory() const { return place_.path() + "/capsules"; }
  // As a job does.
  void WriteAsJob(const std::string& name, const std::string& manifest,
                  const std::string& tensors = Tensors(8)) {
    const iovec piece{const_cast<char*>(tensors.data()), tensors.size()};
    ASSERT_EQ(WriteCapsule(directory().c_str(), name.c_str(), {{&piece, 1}, manifest}), nullptr);
  }
  void Write(const std::string& name, int ticket = 7, const std::string& op = "aten::log") {
    WriteAsJob(name, Manifest(name.substr(0, name.find('-')), ticket, op));
  }
  [[nodiscard]] std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const Capsule& capsule : ReadCapsules(directory())) names.push_back(capsule.name);
    return names;
  }

  TemporaryDirectory place_;
};

TEST_F(CapsuleTest, CompletesWhatAJobHasWritten) {
  Write(std::string(kRun) + "-1");
  EXPECT_TRUE(Names().empty()) << "not complete";
  EXPECT_TRUE(CompleteCapsules(directory()).empty());
  const Result<Capsule> capsule = ReadCapsule(directory() + "/" + kRun + "-1");
  ASSERT_TRUE(capsule.ok()) << capsule.status().message();
  EXPECT_EQ(capsule->run, kRun);
  EXPECT_EQ(capsule->ticket, 7u);
  EXPECT_EQ(capsule->op, "aten::log");
  EXPECT_TRUE(capsule->can_run);
  EXPECT_TRUE(VerifyCapsule(*capsule).ok());
  EXPECT_TRUE(fs::exists(capsule->path + "/repro_op.py"));
}

// The digest of "abc", FIPS 180-2, appendix B.1.
TEST_F(CapsuleTest, HasTheChecksumThatOthersCompute) {
  std::ofstream(place_.path() + "/abc") << "abc";
  EXPECT_EQ(Sha256Of(place_.path() + "/abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_F(CapsuleTest, FindsThatAFileWasChanged) {
  Write(std::string(kRun) + "-1");
  CompleteCapsules(directory());
  const Capsule capsule = ReadCapsules(directory()).at(0);
  std::ofstream(capsule.path + "/tensors.safetensors", std::ios::app) << "y";
  EXPECT_EQ(VerifyCapsule(capsule).kind(), ErrorKind::kCorrupt);
}

TEST_F(CapsuleTest, RemovesWhatIsNotAllThereAndSaysSo) {
  std::string cut = Tensors(64);
  cut.resize(cut.size() - 1);
  WriteAsJob(std::string(kRun) + "-1", Manifest(kRun, 1, "aten::log"), cut);
  const std::vector<std::string> problems = CompleteCapsules(directory());
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("not all there"), std::string::npos) << problems[0];
  EXPECT_TRUE(fs::is_empty(directory()));
}

TEST_F(CapsuleTest, IsDoubtedWhereTheMachineWentDownMeanwhile) {
  Json manifest = Json::parse(Manifest(kRun, 1, "aten::log"));
  manifest["boot"] = "another";
  WriteAsJob(std::string(kRun) + "-1", manifest.dump());
  EXPECT_TRUE(CompleteCapsules(directory()).empty());
  const std::vector<Capsule> capsules = ReadCapsules(directory());
  ASSERT_EQ(capsules.size(), 1u) << "its job may be on another machine";
  EXPECT_FALSE(capsules[0].can_run);
}

TEST_F(CapsuleTest, IsCompletedWhereAToolWasKilledInTheMiddle) {
  Write(std::string(kRun) + "-1");
  fs::rename(directory() + "/" + kRun + "-1.written", directory() + "/" + kRun + "-1.completing");
  EXPECT_TRUE(CompleteCapsules(directory()).empty());
  EXPECT_EQ(Names().size(), 1u);
}

TEST_F(CapsuleTest, IsFoundByTheBeginningOfItsName) {
  Write("aaaa000000000000-1");
  Write("aaaa000000000000-2");
  Write("abbb000000000000-1");
  CompleteCapsules(directory());
  EXPECT_EQ(FindCapsule(directory(), "aa")->name, "aaaa000000000000-1");
  EXPECT_EQ(FindCapsule(directory(), "aaaa000000000000-2")->name, "aaaa000000000000-2");
  EXPECT_EQ(FindCapsule(directory(), directory() + "/abbb000000000000-1/")->run,
            "abbb000000000000");
  EXPECT_EQ(FindCapsule(directory(), "a").status().kind(), ErrorKind::kAmbiguous);
  EXPECT_EQ(FindCapsule(directory(), "b").status().kind(), ErrorKind::kNotFound);
}

TEST_F(CapsuleTest, BelongsToItsFindingAlone) {
  Write(std::string(kRun) + "-1", 7);
  Write(std::string(kRun) + "-2", 9, "aten::div");
  CompleteCapsules(directory());
  const std::vector<Capsule> capsules = ReadCapsules(directory());
  Finding origin;
  origin.set_run(kRun);
  origin.set_ticket(9);
  EXPECT_EQ(CapsuleOf(origin, capsules), &capsules[1]);
  origin.set_ticket(100);
  EXPECT_EQ(CapsuleOf(origin, capsules), nullptr);
  origin.set_ticket(9);
  origin.set_run("another");
  EXPECT_EQ(CapsuleOf(origin, capsules), nullptr);
}

TEST_F(CapsuleTest, OfNoIncidentGoesWhenTheJobHasEnded) {
  Write(std::string(kRun) + "-1", 7);
  Write(std::string(kRun) + "-2", 9, "aten::div");
  Write("ffff000000000000-1", 1);  // of another job
  Verdict verdict;
  verdict.add_runs()->set_id(kRun);
  Incident& incident = *verdict.add_incidents();
  incident.set_severity("critical");
  incident.mutable_origin()->set_run(kRun);
  incident.mutable_origin()->set_ticket(9);
  EXPECT_TRUE(SettleCapsules(directory(), verdict).empty());
  EXPECT_EQ(Names(), (std::vector<std::string>{std::string(kRun) + "-2", "ffff000000000000-1"}));
  AddCapsules(directory(), verdict);
  EXPECT_EQ(verdict.incidents(0).capsule(), directory() + "/" + kRun + "-2");
}

// Whenever the job is killed, what verifies is whole.
TEST_F(CapsuleTest, IsWholeOrNotThereWhereTheJobIsKilled) {
  constexpr int kKills = 100;
  std::mt19937 random(20261126);
  const std::string tensors = Tensors(1 << 20);
  int found = 0;
  for (int i = 0; i < kKills; ++i) {
    const pid_t job = fork();
    if (job == 0) {
      for (int n = 1;; ++n)
        WriteAsJob("run" + std::to_string(i) + "-" + std::to_string(n), Manifest(kRun, n, "op"),
                   tensors);
    }
    const timespec moment{.tv_sec = 0, .tv_nsec = static_cast<long>(random() % 8'000'000)};
    nanosleep(&moment, nullptr);
    kill(job, SIGKILL);
    waitpid(job, nullptr, 0);
    EXPECT_TRUE(CompleteCapsules(directory()).empty());
    for (const Capsule& capsule : ReadCapsules(directory())) {
      EXPECT_TRUE(VerifyCapsule(capsule).ok());
      EXPECT_EQ(fs::file_size(capsule.path + "/tensors.safetensors"), tensors.size());
      ++found;
    }
    fs::remove_all(directory());
  }
  EXPECT_GT(found, 0) << "the kills came before the first was written";
}

}  // namespace
}  // namespace nanwatch
