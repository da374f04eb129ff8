// SPDX-License-Identifier: Apache-2.0
// A folder with an installation of nanwatch, fake torches and fake observers in it, and programs
// run there: the language that the tests of shim/entry are written in. One scene a test; removed at
// its end. Not for several threads.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace nanwatch::test {

struct Ran {
  int status = -1;  // the exit status, or 128 + the signal
  std::string out;
  std::string err;
  std::vector<std::string> log;  // lines of NANWATCH_LOG
};

class Scene {
 public:
  Scene();
  ~Scene();
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  // A copy of the built libnanwatch.so in the folder `prefix`/lib; returns its path.
  std::string Library(std::string_view prefix = "prefix") const;

  // Puts a fake observer for torch `minor` beside that copy: "observer", or another file of
  // tests/fakes/torch.
  void Observer(std::string_view minor, std::string_view fake = "observer",
                std::string_view prefix = "prefix") const;

  // A fake torch as a Python package, as the LibTorch archive, and as a distribution ships it; each
  // returns libtorch_cpu's path.
  std::string TorchPackage(std::string_view version) const;
  std::string TorchArchive(std::string_view version) const;
  std::string TorchOfDistribution(std::string_view soname_version) const;
  std::string TorchWithoutVersion() const;

  // Runs `command` to its end, found on PATH, with only LD_PRELOAD, NANWATCH* replaced by
  // `environment`, and NANWATCH_LOG.
  Ran Run(const std::vector<std::string>& command,
          std::map<std::string, std::string> environment = {}, unsigned as_user = 0) const;

  // The same with the library preloaded, and the host program with these words preloaded.
  Ran RunPreloaded(const std::vector<std::string>& command,
                   std::map<std::string, std::string> environment = {}) const;
  Ran Host(const std::vector<std::string>& words,
           std::map<std::string, std::string> environment = {}) const;

  const std::filesystem::path& root() const { return root_; }

 private:
  std::filesystem::path root_;
};

}  // namespace nanwatch::test
