// SPDX-License-Identifier: Apache-2.0
#include "shim/host/process_identity.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <utility>

#include "proto/wire/launch.h"
#include "tests/shim/host/segment_place.h"

namespace nanwatch {
namespace {

using Variables = std::initializer_list<std::pair<const char*, const char*>>;

// "job/rank/local_rank/world_size/attempt" as a process with these variables alone would state
// them.
std::string PlaceWith(const Variables& variables) {
  return InChild([&]() -> std::string {
    clearenv();
    for (const auto& [name, value] : variables) setenv(name, value, 1);
    wire::SegmentHeader header{};
    FillIdentity(header);
    char text[256];
    std::snprintf(text, sizeof text, "%s/%d/%d/%d/%d", header.job, header.rank, header.local_rank,
                  header.world_size, header.attempt);
    return text;
  });
}

// What a launcher or the outermost process adds to an id that repeats.
std::string KeyOf(pid_t pid) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", wire::launch_internal::ProcessKey(pid));
  return text;
}

TEST(ProcessIdentity, IsRankZeroOfOneWithoutALauncher) { EXPECT_EQ(PlaceWith({}), "/0/0/1/0"); }

TEST(ProcessIdentity, UnderstandsTorchrun) {
  EXPECT_EQ(PlaceWith({{"RANK", "5"},
                       {"LOCAL_RANK", "1"},
                       {"WORLD_SIZE", "8"},
                       {"TORCHELASTIC_RESTART_COUNT", "2"},
                       {"TORCHELASTIC_RUN_ID", "night"}}),
            "night-" + KeyOf(getpid()) + "/5/1/8/2");
  EXPECT_EQ(PlaceWith({{"RANK", "0"}, {"TORCHELASTIC_RUN_ID", "none"}}),
            "torchrun-" + KeyOf(getpid()) + "/0/0/1/0");
}

TEST(ProcessIdentity, IgnoresNumbersThatAreNone) {
  EXPECT_EQ(PlaceWith({{"RANK", "x"}, {"SLURM_PROCID", "-1"}, {"LOCAL_RANK", "99999999999"}}),
            "/0/0/1/0");
  EXPECT_EQ(PlaceWith({{"RANK", ""}, {"OMPI_COMM_WORLD_RANK", ""}}), "/0/0/1/0");
}

TEST(ProcessIdentity, UnderstandsSlurm) {
  EXPECT_EQ(PlaceWith({{"SLURM_PROCID", "3"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_NTASKS", "4"},
                       {"SLURM_JOB_ID", "4711"},
                       {"SLURM_STEP_ID", "2"},
                       {"SLURM_RESTART_COUNT", "1"}}),
            "4711.2/3/1/4/1");
}

TEST(ProcessIdentity, BelievesTorchrunInsideASlurmStepAndOurOwnJobNameFirst) {
  EXPECT_EQ(PlaceWith({{"SLURM_PROCID", "0"},
                       {"SLURM_NTASKS", "2"},
                       {"SLURM_JOB_ID", "4711"},
                       {"RANK", "9"},
                       {"WORLD_SIZE", "16"},
                       {"NANWATCH_JOB", "mine"}}),
            "mine/9/0/16/0");
}

TEST(ProcessIdentity, UnderstandsMpi) {
  EXPECT_EQ(PlaceWith({{"OMPI_COMM_WORLD_RANK", "2"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                       {"OMPI_COMM_WORLD_SIZE", "6"}}),
            "mpirun-" + KeyOf(getpid()) + "/2/1/6/0");
  EXPECT_EQ(PlaceWith({{"PMI_RANK", "2"}, {"MPI_LOCALRANKID", "1"}, {"PMI_SIZE", "6"}}),
            "mpirun-" + KeyOf(getpid()) + "/2/1/6/0");
}

TEST(ProcessIdentity, CutsALongJobName) {
  const std::string job(200, 'j');
  EXPECT_EQ(PlaceWith({{"NANWATCH_JOB", job.c_str()}}), std::string(63, 'j') + "/0/0/1/0");
}

TEST(ProcessIdentity, NamesTheProcessSoThatItIsKnownAgain) {
  wire::SegmentHeader header{};
  FillIdentity(header);
  EXPECT_EQ(header.pid, getpid());
  EXPECT_EQ(header.parent_pid, getppid());
  EXPECT_GE(header.pid_outer, 1);
  EXPECT_GT(header.started_real_ns, uint64_t{1'600'000'000} * 1'000'000'000);
  EXPECT_GT(header.started_monotonic_ns, 0u);

  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  EXPECT_EQ(header.boot_id, boot);
  EXPECT_EQ(boot.size(), 36u);
  struct stat status {};
  ASSERT_EQ(stat("/proc/self/ns/pid", &status), 0);
  EXPECT_EQ(header.pid_namespace, status.st_ino);

  // Field 22, by another way: fields behind the last parenthesis, the third being the first of
  // them.
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string field;
  for (int number = 3; number <= 22; ++number) fields >> field;
  EXPECT_EQ(std::to_string(header.process_start_ticks), field);
}

TEST(ProcessIdentity, KeepsTheCommandAsWholeArguments) {
  wire::SegmentHeader header{};
  FillIdentity(header);
  ASSERT_GT(header.command_bytes, 0u);
  ASSERT_LE(header.command_bytes, sizeof header.command);
  EXPECT_EQ(header.command[header.command_bytes - 1], '\0');
  EXPECT_STREQ(header.program, "nanwatch_host_test");
  EXPECT_EQ(std::filesystem::path(header.command + header.command_bytes),
            std::filesystem::current_path());
}

std::string Named(std::initializer_list<std::string_view> arguments) {
  std::string command;
  for (const std::string_view argument : arguments) command.append(argument).push_back('\0');
  return std::string(ProgramName(command, "python3.11"));
}

TEST(ProgramName, IsWhatAPersonWouldCallTheJob) {
  EXPECT_EQ(Named({"python", "train.py"}), "train.py");
  EXPECT_EQ(Named({"python", "-u", "/home/me/src/train.py", "--config", "big.py"}), "train.py");
  EXPECT_EQ(Named({"python", "-m", "pkg.train", "x.py"}), "pkg.train");
  EXPECT_EQ(Named({"/usr/bin/python3", "-m"}), "python3.11");
  EXPECT_EQ(Named({"python", "-c", "print('x.py')"}), "python3.11");
  EXPECT_EQ(Named({"./trainer", "--fast"}), "python3.11");
  EXPECT_EQ(Named({"/opt/tool.py", "x"}), "python3.11") << "its interpreter would stand before it";
  EXPECT_EQ(Named({}), "python3.11");
}

TEST(ProcessIdentity, KnowsASpawnedWorkerByItsCommand) {
  using namespace std::string_view_literals;
  EXPECT_TRUE(
      IsSpawnedWorker("python\0-c\0from multiprocessing.spawn import spawn_main\0"
                      "--multiprocessing-fork\0"sv));
  EXPECT_FALSE(IsSpawnedWorker("python\0train.py\0--multiprocessing-forks\0"sv));
  EXPECT_FALSE(IsSpawnedWorker());
}

}  // namespace
}  // namespace nanwatch
