// SPDX-License-Identifier: Apache-2.0
// How often a target that is compiled without libFuzzer spoils its inputs: --rounds N --seed S.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>

namespace nanwatch {

// The number behind the word at `*at`, which it moves on to; 0: there is none.
inline uint64_t NumberBehind(int argc, char** argv, int* at) {
  return *at + 1 < argc ? std::strtoull(argv[++*at], nullptr, 10) : 0;
}

struct Rounds {
  uint64_t count;
  uint64_t seed = 1;  // 0: a new one

  // Whether the word at `*at` is one of these options, which is then taken with its number.
  bool Take(int argc, char** argv, int* at) {
    const std::string_view word = argv[*at];
    if (word != "--rounds" && word != "--seed") return false;
    (word == "--rounds" ? count : seed) = NumberBehind(argc, argv, at);
    return true;
  }
  // Picks a new seed where one is asked for, and prints it, so that a finding can be had again.
  void Begin() {
    if (seed == 0) seed = std::random_device()();
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    std::fflush(stdout);
  }
};

}  // namespace nanwatch
