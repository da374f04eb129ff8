// SPDX-License-Identifier: Apache-2.0
#include "tests/shim/entry/scene.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace nanwatch::test {
namespace {

namespace fs = std::filesystem;

const fs::path kPrograms = NANWATCH_TEST_PROGRAMS;
constexpr char kBuiltLibrary[] = NANWATCH_BUILT_LIBRARY;

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string CopyTorch(const fs::path& folder, std::string_view file) {
  fs::create_directories(folder);
  fs::path target = folder / file;
  fs::copy_file(kPrograms / "libtorch_cpu.so", target, fs::copy_options::overwrite_existing);
  return target;
}

// The environment of this process without anything of ours, and with `changes`.
std::vector<std::string> EnvironmentWith(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view text = *entry;
    std::string_view name = text.substr(0, text.find('='));
    if (name == "LD_PRELOAD" || name.starts_with("NANWATCH") ||
        changes.contains(std::string(name))) {
      continue;
    }
    result.emplace_back(text);
  }
  for (const auto& [name, value] : changes) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// The child's side of a run; async-signal-safe calls only.
[[noreturn]] void Become(char** command, char** environment, const char* out, const char* err,
                         unsigned as_user) {
  int out_fd = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  int err_fd = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  dup2(out_fd, STDOUT_FILENO);
  dup2(err_fd, STDERR_FILENO);
  close(out_fd);
  close(err_fd);
  if (as_user != 0 && (setgid(as_user) != 0 || setuid(as_user) != 0)) _exit(125);
  execvpe(command[0], command, environment);
  _exit(127);
}

}  // namespace

Scene::Scene() {
  std::string pattern = fs::temp_directory_path() / "nanwatch-entry-XXXXXX";
  root_ = mkdtemp(pattern.data());
  fs::permissions(root_, fs::perms::owner_all | fs::perms::others_exec | fs::perms::group_exec);
}

Scene::~Scene() {
  std::error_code ignored;
  fs::remove_all(root_, ignored);
}

std::string Scene::Library(std::string_view prefix) const {
  fs::path folder = root_ / prefix / "lib";
  fs::create_directories(folder / "nanwatch");
  fs::path target = folder / "libnanwatch.so";
  if (!fs::exists(target)) fs::copy_file(kBuiltLibrary, target);
  return target;
}

void Scene::Observer(std::string_view minor, std::string_view fake, std::string_view prefix) const {
  fs::path folder = fs::path(Library(prefix)).parent_path() / "nanwatch";
  fs::copy_file(kPrograms / (std::string(fake) + ".so"),
                folder / ("libnanwatch_observer-" + std::string(minor) + ".so"));
}

std::string Scene::TorchPackage(std::string_view version) const {
  std::string library = CopyTorch(root_ / "site-packages/torch/lib", "libtorch_cpu.so");
  std::ofstream(root_ / "site-packages/torch/version.py")
      << "from typing import Optional\n\n__all__ = ['__version__', 'debug']\n__version__ = '"
      << version << "'\ndebug = False\n";
  return library;
}

std::string Scene::TorchArchive(std::string_view version) const {
  std::string library = CopyTorch(root_ / "libtorch/lib", "libtorch_cpu.so");
  std::ofstream(root_ / "libtorch/build-version") << version << "\n";
  return library;
}

std::string Scene::TorchOfDistribution(std::string_view soname_version) const {
  return CopyTorch(root_ / "usr/lib", "libtorch_cpu.so." + std::string(soname_version));
}

std::string Scene::TorchWithoutVersion() const {
  return CopyTorch(root_ / "bare/lib", "libtorch_cpu.so");
}

Ran Scene::Run(const std::vector<std::string>& command,
               std::map<std::string, std::string> environment, unsigned as_user) const {
  const fs::path out = root_ / "stdout", err = root_ / "stderr", log = root_ / "log";
  fs::remove(log);
  environment.try_emplace("NANWATCH_LOG", log);
  std::vector<std::string> environment_texts = EnvironmentWith(environment);
  std::vector<char*> arguments = Pointers(command), variables = Pointers(environment_texts);

  pid_t child = fork();
  if (child == 0) Become(arguments.data(), variables.data(), out.c_str(), err.c_str(), as_user);
  int status = 0;
  waitpid(child, &status, 0);
  return {.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = ReadAll(out),
          .err = ReadAll(err),
          .log = Lines(ReadAll(log))};
}

Ran Scene::RunPreloaded(const std::vector<std::string>& command,
                        std::map<std::string, std::string> environment) const {
  environment.try_emplace("LD_PRELOAD", Library());
  return Run(command, std::move(environment));
}

Ran Scene::Host(const std::vector<std::string>& words,
                std::map<std::string, std::string> environment) const {
  std::vector<std::string> command = {kPrograms / "entry_host"};
  command.insert(command.end(), words.begin(), words.end());
  return RunPreloaded(command, std::move(environment));
}

}  // namespace nanwatch::test
