// SPDX-License-Identifier: Apache-2.0
// The main of a libFuzzer target that is compiled without libFuzzer: reads the kept inputs once
// each, then spoilt copies of them.
//
//   text_fuzz CORPUS [--rounds N] [--seed S]     S 0: a new one, which is printed
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/rounds.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) __attribute__((weak));

namespace {

using Input = std::vector<uint8_t>;

// In the order of their names, so that a seed means the same everywhere.
std::vector<Input> ReadAll(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  std::vector<Input> inputs;
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

void Spoil(Input& input, const Input& other, std::mt19937_64& random) {
  for (uint64_t n = 1 + random() % 4; n > 0 && !input.empty(); --n) {
    const size_t at = random() % input.size();
    if (random() % 4 == 0) {
      input.erase(
          input.begin() + static_cast<ptrdiff_t>(at),
          input.begin() + static_cast<ptrdiff_t>(std::min(input.size(), at + 1 + random() % 16)));
    } else if (random() % 4 == 0 && !other.empty()) {
      const size_t from = random() % other.size();
      const size_t bytes = std::min<size_t>(other.size() - from, random() % 64);
      input.insert(input.begin() + static_cast<ptrdiff_t>(at),
                   other.begin() + static_cast<ptrdiff_t>(from),
                   other.begin() + static_cast<ptrdiff_t>(from + bytes));
    } else {
      input[at] = static_cast<uint8_t>(random());
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  nanwatch::Rounds rounds{.count = 0};
  std::string folder;
  for (int i = 1; i < argc; ++i) {
    if (!rounds.Take(argc, argv, &i)) folder = argv[i];
  }
  if (LLVMFuzzerInitialize != nullptr) (void)LLVMFuzzerInitialize(&argc, &argv);
  rounds.Begin();
  const std::vector<Input> inputs = ReadAll(folder);
  if (inputs.empty()) return 1;
  for (const Input& input : inputs) (void)LLVMFuzzerTestOneInput(input.data(), input.size());
  std::mt19937_64 random(rounds.seed);
  for (uint64_t i = 0; i < rounds.count; ++i) {
    Input input = inputs[random() % inputs.size()];
    Spoil(input, inputs[random() % inputs.size()], random);
    (void)LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::printf("%zu kept inputs, %llu spoilt ones: none did harm\n", inputs.size(),
              static_cast<unsigned long long>(rounds.count));
  return 0;
}
