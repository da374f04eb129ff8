// SPDX-License-Identifier: Apache-2.0
#include "daemon/correlate/kernels.h"

#include <gtest/gtest.h>

#include <random>

namespace nanwatch {
namespace {

TEST(KernelName, IsTheSourcesOwn) {
  EXPECT_EQ(KernelName("_Z10log_kernelPf"), "log_kernel(float*)");
  EXPECT_EQ(
      KernelName("_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_16sqrt_kernel_cudaERNS_"
                 "18TensorIteratorBaseEENKUlvE0_clEvENKUlvE0_clEvEUlfE_St5arrayIPcLm2EEEEviT0_T1_"),
      "void at::native::vectorized_elementwise_kernel<4, at::native::sqrt_kernel_cuda(at::"
      "TensorIteratorBase&)::{lambda()#2}::operator()() const::{lambda()#2}::operator()() const::"
      "{lambda(float)#1}, std::array<char*, 2ul> >(int, at::native::sqrt_kernel_cuda(at::"
      "TensorIteratorBase&)::{lambda()#2}::operator()() const::{lambda()#2}::operator()() const::"
      "{lambda(float)#1}, std::array<char*, 2ul>)");
  EXPECT_EQ(KernelName("ampere_sgemm_128x64_tn"), "ampere_sgemm_128x64_tn");
  EXPECT_EQ(KernelName("triton_poi_fused_log_0"), "triton_poi_fused_log_0");
}

TEST(KernelName, IsTheQualifiedNameWhereTheRestWasCut) {
  EXPECT_EQ(KernelName("_ZN2at6native13reduce_kernelILi512ELi1ENS0_8Redu"),
            "at::native::reduce_kernel<...>");
  EXPECT_EQ(KernelName("_ZN2at6native12_GLOBAL__N_13fooIf"),
            "at::native::(anonymous namespace)::foo<...>");
  EXPECT_EQ(KernelName("_Z"), "_Z");
  EXPECT_EQ(KernelName("_Z99999999999999999999999a"), "_Z99999999999999999999999a");
}

// Each part says the one before twice: ten megabytes, if it were told in full.
TEST(KernelName, OfANameThatGrowsWithoutEndIsBounded) {
  std::string name = "_Z1f1pI1aE";
  for (const char last : std::string("13579BDFHJLNPRTVX")) {
    const std::string reference = {'S', last, '_'};
    name += "1qI" + reference + reference + "E";
  }
  EXPECT_EQ(KernelName(name), "f<...>");
}

TEST(KernelName, OfAnythingIsBounded) {
  std::mt19937 random(20261122);
  const std::string letters = "_ZNSTIEKLPRUvif0123456789abcJDpdX";
  for (int i = 0; i < 20'000; ++i) {
    std::string name = "_Z";
    const size_t length = random() % 500;
    while (name.size() < length) name += letters[random() % letters.size()];
    EXPECT_LE(KernelName(name).size(), 1100u) << name;
  }
}

}  // namespace
}  // namespace nanwatch
