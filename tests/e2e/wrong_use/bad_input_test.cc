// SPDX-License-Identifier: Apache-2.0
// Databases that cannot be read, files that cannot be written, runs that are gone, ports that are
// taken: by every verb one sentence that says what to do, and no half a file.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "daemon/base/unique_fd.h"
#include "tests/e2e/wrong_use/tool_process.h"
#include "tests/fakes/segment_builder.h"
#include "tools/daemon_start.h"

namespace nanwatch {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Words = std::vector<std::string>;

std::string Text(const Words& words) {
  std::string text;
  for (const std::string& word : words) text += word + " ";
  return text;
}

// A run with a finding and steps is in the database, and no daemon runs.
class BadInputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(tool_.SegmentDir());
    fs::permissions(tool_.SegmentDir(), fs::perms::owner_all);
    SegmentBuilder job(tool_.SegmentDir(), {.nonce = 0xabc, .job = "known", .dead = true});
    job.WriteValue("aten::log", "encoder");
    for (int i = 0; i < 20; ++i) job.WriteStep(0.5);
    job.Publish();
    ASSERT_EQ(tool_.Run({"gc", "--wait", "600"}).exit_code, 0);
    ASSERT_THAT(tool_.Run({"ps", "--all"}).out, HasSubstr("known"));
    EndDaemon();
  }

  void EndDaemon() {
    const pid_t daemon = RunningDaemon(tool_.SegmentDir()).value_or(0);
    ASSERT_GT(daemon, 0);
    kill(daemon, SIGTERM);
    for (int i = 0; i < 60'000 && kill(daemon, 0) == 0; ++i) usleep(1000);
    ASSERT_FALSE(fs::exists(Database() + "-wal")) << "it wrote everything into the database";
  }

  [[nodiscard]] std::string Database() const { return tool_.home().Path("state/nanwatch.db"); }
  [[nodiscard]] std::string Target() const { return tool_.home().Path("target"); }

  [[nodiscard]] std::vector<Words> Readers() const {
    return {{"ps"},
            {"top", "--once"},
            {"tail"},
            {"tail", "known"},
            {"report"},
            {"report", "known", "--json"},
            {"report", "--html", Target()},
            {"report", "--stats"},
            {"report", "--explain", "1"},
            {"export", "--format", "csv"},
            {"export", "known", "--format", "jsonl"},
            {"export", "--format", "trace"},
            {"export", "--format", "otlp", "--output", Target()},
            {"export", "--format", "tensorboard", "--output", Target()},
            {"forward", "--to", "http://127.0.0.1", "--once"}};
  }

  // One sentence with this in it, and nothing was written.
  void ExpectRefusal(const Words& words, const std::string& advice) {
    const ToolResult result = tool_.Run(words);
    EXPECT_EQ(result.exit_code, 1) << Text(words);
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
        << Text(words) << result.err;
    EXPECT_THAT(result.err, AllOf(HasSubstr("nanwatch: "), HasSubstr(advice))) << Text(words);
    EXPECT_FALSE(fs::exists(Target())) << Text(words);
  }

  Tool tool_;
};

TEST_F(BadInputTest, ADatabaseOfANewerVersion) {
  std::fstream file(Database(), std::ios::in | std::ios::out | std::ios::binary);
  constexpr std::streamoff kUserVersion = 60;  // of SQLite's header, big-endian
  file.seekp(kUserVersion);
  file.write("\0\0\3\xe7", 4);
  file.close();
  for (const Words& words : Readers())
    ExpectRefusal(words, "999 and was written by a newer nanwatch");
}

TEST_F(BadInputTest, ADatabaseThatIsNone) {
  std::ofstream(Database()) << std::string(8192, 'x');
  for (const Words& words : Readers())
    ExpectRefusal(words, "move it away, or set NANWATCH_STATE_DIR");
}

TEST_F(BadInputTest, ADatabaseThatIsLocked) {
  const UniqueFd held(open(Database().c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(held.valid());
  // SQLite's own: the bytes behind the first GiB.
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_start = 0x40000000;
  lock.l_len = 512;
  ASSERT_EQ(fcntl(held.get(), F_SETLK, &lock), 0);
  for (const Words& words : {Words{"ps"},
                             {"top", "--once"},
                             {"tail"},
                             {"report"},
                             {"export", "--format", "csv"},
                             {"forward", "--to", "http://127.0.0.1", "--once"}}) {
    const auto began = std::chrono::steady_clock::now();
    ExpectRefusal(words, "another process holds it, try again");
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(3)) << Text(words);
  }
}

TEST_F(BadInputTest, ARunThatIsNotThere) {
  for (const Words& words : {Words{"report", "gone"},
                             {"report", "gone", "--html", Target()},
                             {"tail", "gone"},
                             {"export", "gone", "--format", "csv", "--output", Target()},
                             {"export", "gone", "--format", "otlp", "--to", "http://127.0.0.1"}})
    ExpectRefusal(words, "no run or job begins with 'gone': 'nanwatch ps --all' lists them");
}

TEST_F(BadInputTest, AFileThatCannotBeWritten) {
  const std::vector<Words> writers = {{"report", "--html"},
                                      {"export", "--format", "csv", "--output"},
                                      {"export", "--format", "jsonl", "--output"},
                                      {"export", "--format", "trace", "--output"},
                                      {"export", "--format", "otlp", "--output"},
                                      {"export", "--format", "prometheus", "--textfile"}};
  const auto expect = [&](const std::string& path, const std::string& advice) {
    for (Words words : writers) {
      words.push_back(path);
      ExpectRefusal(words, advice);
    }
  };
  expect(tool_.home().Path("absent/file"), "name a file in a directory that exists");
  expect(tool_.home().path(), "Is a directory");
  if (access("/dev/full", W_OK) == 0) expect("/dev/full", "make room there");
  ExpectRefusal({"export", "--format", "tensorboard", "--output", Database()},
                "name a folder that you may write to");
}

// What SQLite needs to read has room, the page has not.
TEST_F(BadInputTest, AFileThatGrowsBeyondTheLimit) {
  tool_.As("/bin/sh");
  ExpectRefusal({"-c", "ulimit -f 100; " NANWATCH_TOOL " report --html " + Target()},
                "raise the limit on the size of files ('ulimit -f')");
  for (const fs::directory_entry& entry : fs::directory_iterator(tool_.home().path()))
    EXPECT_NE(entry.path().extension(), ".tmp") << entry;
}

TEST_F(BadInputTest, OutputThatFindsNoRoom) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  tool_.As("/bin/sh");
  for (const char* words :
       {"ps", "top --once", "tail", "report", "report --json", "report --html -",
        "report --explain 1", "export --format csv", "export --format jsonl",
        "export --format trace", "export --format otlp", "config", "doctor", "gc --dry-run",
        "completion bash"})
    ExpectRefusal({"-c", NANWATCH_TOOL " " + std::string(words) + " >/dev/full"},
                  "No space left on device: make room where it goes, or send it elsewhere");
}

TEST_F(BadInputTest, APortThatIsTaken) {
  const UniqueFd taken(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(taken.get(), generic, length), 0);
  ASSERT_EQ(listen(taken.get(), 1), 0);
  ASSERT_EQ(getsockname(taken.get(), generic, &length), 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  ExpectRefusal({"serve", "--listen", "127.0.0.1:" + port},
                port + " is in use: stop what listens there, or name another port");
}

TEST_F(BadInputTest, ATokenFileThatIsNone) {
  for (const auto& [path, advice] :
       {std::pair<std::string, std::string>("/dev/null", "is no file"),
        {tool_.home().Path("absent"), "cannot be read"},
        {tool_.home().Write("open", "0123456789abcdef", 0644), "run 'chmod 600 "}})
    ExpectRefusal({"serve", "--listen", "127.0.0.1:0", "--token-file", path}, advice);
}

}  // namespace
}  // namespace nanwatch
