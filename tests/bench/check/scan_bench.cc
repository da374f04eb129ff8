// SPDX-License-Identifier: Apache-2.0
// How fast is the scan, for each instruction set, element type and size? And the slow path, other
// layouts, a second thread? Prints GB/s of one core's time, best of several rounds, over a warm
// buffer that is read again and again, so that small sizes show the caches and large ones memory.
//
//   scan_bench [ROUNDS]        (default 7)
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "shim/check/parallel.h"
#include "shim/check/scan.h"

namespace nanwatch {
namespace {

// Time this thread had a processor: other programs on the machine lengthen it little.
double ThreadNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double WallNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

struct NamedType {
  const char* name;
  wire::ElementType type;
};
constexpr NamedType kTypes[] = {
    {"float64", wire::ElementType::kFloat64},         {"float32", wire::ElementType::kFloat32},
    {"float16", wire::ElementType::kFloat16},         {"bfloat16", wire::ElementType::kBFloat16},
    {"complex64", wire::ElementType::kComplex64},     {"e4m3fn", wire::ElementType::kFloat8E4M3Fn},
    {"e4m3fnuz", wire::ElementType::kFloat8E4M3Fnuz},
};
constexpr size_t kSizes[] = {64, 256, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};

// Nanoseconds of one call of `call`, the best of `rounds` rounds of some milliseconds each.
template <class Call>
double BestNanoseconds(int rounds, size_t bytes, Call call, double (*now)() = ThreadNanoseconds) {
  const size_t calls = std::max<size_t>(1, (size_t{32} << 20) / std::max<size_t>(bytes, 1024));
  double best = 1e18;
  for (int round = 0; round < rounds; ++round) {
    const double begin = now();
    for (size_t i = 0; i < calls; ++i) call();
    best = std::min(best, (now() - begin) / static_cast<double>(calls));
  }
  return best;
}

volatile bool g_sink;

void PrintScan(const std::vector<char>& memory, int rounds) {
  for (const char* level : {"scalar", "avx2", "avx512"}) {
    if (std::string(InitScan(level)) != level) {
      std::printf("%s: not on this processor\n", level);
      continue;
    }
    std::printf("%-8s%-10s", level, "GB/s");
    for (const size_t bytes : kSizes)
      std::printf("%9zu%s", bytes >= 1024 ? bytes >> 10 : bytes, bytes >= 1024 ? "K" : "B");
    std::printf("\n");
    for (const NamedType& type : kTypes) {
      std::printf("%-8s%-10s", "", type.name);
      for (const size_t bytes : kSizes) {
        const size_t count = bytes / ElementBytes(type.type);
        const double ns = BestNanoseconds(
            rounds, bytes, [&] { g_sink = HasNonFinite(type.type, memory.data(), count); });
        std::printf("%10.1f", static_cast<double>(bytes) / ns);
      }
      std::printf("\n");
    }
  }
}

void PrintSlowPath(const std::vector<char>& memory, int rounds) {
  std::printf("\n%s, 1 MiB, GB/s%8s%8s%12s\n", InitScan(nullptr), "count", "kinds", "kinds, bad");
  std::vector<char> bad(size_t{1} << 20,
                        static_cast<char>(0xff));  // NaN in every format here but fnuz
  for (const NamedType& type : kTypes) {
    const int64_t size = static_cast<int64_t>(bad.size() / ElementBytes(type.type)), stride = 1;
    const TensorView view{memory.data(), type.type, 1, &size, &stride, size};
    const TensorView bad_view{bad.data(), type.type, 1, &size, &stride, size};
    wire::TensorStats stats;
    const auto speed = [&](auto call) {
      return static_cast<double>(bad.size()) / BestNanoseconds(rounds, bad.size(), call);
    };
    std::printf("%-20s%10.1f%8.1f%12.1f\n", type.name, speed([&] { CountNonFinite(view, &stats); }),
                speed([&] { g_sink = NonFiniteKinds(view) != 0; }),
                speed([&] { g_sink = NonFiniteKinds(bad_view) != 0; }));
  }
}

void PrintLayouts(const std::vector<char>& memory, int rounds) {
  std::printf("\nfloat32 by layout, 256 x 256 elements    ns a tensor\n");
  struct Layout {
    const char* name;
    int64_t sizes[2], strides[2];
  };
  for (const Layout& layout :
       {Layout{"contiguous", {256, 256}, {256, 1}}, Layout{"transposed", {256, 256}, {1, 256}},
        Layout{"rows of a wider tensor", {256, 256}, {320, 1}},
        Layout{"three columns", {256, 3}, {256, 1}}, Layout{"every second", {256, 256}, {512, 2}},
        Layout{"one column", {256, 1}, {256, 1}}, Layout{"expanded", {256, 256}, {0, 1}}}) {
    const TensorView view{memory.data(),  wire::ElementType::kFloat32,      2, layout.sizes,
                          layout.strides, layout.sizes[0] * layout.sizes[1]};
    std::printf("  %-36s%14.0f\n", layout.name,
                BestNanoseconds(rounds, 1 << 18, [&] { g_sink = HasNonFinite(view); }));
  }
}

// Threads made for each call cost more than a pool's, so this shows what the memory gives, not the
// price of waking: the smallest worthwhile size is larger than it looks here by that price.
void PrintThreads(const std::vector<char>& memory, int rounds) {
  const unsigned threads = std::max(1U, std::thread::hardware_concurrency());
  std::printf("\nfloat32, us a scan%10s%10u threads\n", "1 thread", threads);
  for (const size_t bytes : {size_t{2} << 20, size_t{8} << 20, size_t{64} << 20}) {
    double us[2];
    for (const int many : {0, 1}) {
      SetParallelFor(many == 0
                         ? nullptr
                         : ParallelFor{[](int64_t begin, int64_t end, int64_t,
                                          void (*body)(void*, int64_t, int64_t), void* context) {
                             const int64_t middle = begin + (end - begin) / 2;
                             std::thread other(body, context, begin, middle);
                             body(context, middle, end);
                             other.join();
                           }});
      us[many] =
          BestNanoseconds(
              rounds, bytes,
              [&] { g_sink = HasNonFinite(wire::ElementType::kFloat32, memory.data(), bytes / 4); },
              WallNanoseconds) /
          1000;
    }
    SetParallelFor(nullptr);
    std::printf("  %6zu MiB        %10.1f%10.1f\n", bytes >> 20, us[0], us[1]);
  }
}

}  // namespace
}  // namespace nanwatch

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 7;
  const std::vector<char> memory(size_t{64} << 20, 0);
  nanwatch::PrintScan(memory, rounds);
  nanwatch::PrintSlowPath(memory, rounds);
  nanwatch::PrintLayouts(memory, rounds);
  nanwatch::PrintThreads(memory, rounds);
  return 0;
}
