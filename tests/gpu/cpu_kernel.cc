// SPDX-License-Identifier: Apache-2.0
// Lets the fake driver run the check kernels' own source, so that what Python asks of a GPU can be
// asked here first.
#include "tests/fakes/cuda/fake_cuda.h"
#include "tests/property/device/cpu_machine.h"

namespace {

template <class Launch>
void Run(const void* parameter, uint32_t blocks, uint32_t /*threads*/) {
  static std::mt19937_64 random{1};
  nanwatch::device::RunLaunch(*static_cast<const Launch*>(parameter), blocks, random);
}

}  // namespace

// One device with its context current, as after the first tensor on it.
extern "C" __attribute__((visibility("default"))) void nanwatch_make_cpu_device() {
  using nanwatch::device::BatchLaunch;
  using nanwatch::device::CompareLaunch;
  using nanwatch::device::FewLaunch;
  using nanwatch::device::ListLaunch;
  using nanwatch::device::ManyLaunch;
  using nanwatch::device::MeasureLaunch;
  using nanwatch::device::SumLaunch;
  fake_cuda_reset(1);
  fake_cuda_set_device(0);
  fake_cuda_set_logging(0);
  fake_cuda_register_kernel("nanwatch_check_few", Run<FewLaunch>, sizeof(FewLaunch));
  fake_cuda_register_kernel("nanwatch_check_many", Run<ManyLaunch>, sizeof(ManyLaunch));
  fake_cuda_register_kernel("nanwatch_check_list", Run<ListLaunch>, sizeof(ListLaunch));
  fake_cuda_register_kernel("nanwatch_sum_list", Run<SumLaunch>, sizeof(SumLaunch));
  fake_cuda_register_kernel("nanwatch_measure_list", Run<MeasureLaunch>, sizeof(MeasureLaunch));
  fake_cuda_register_kernel("nanwatch_compare_list", Run<CompareLaunch>, sizeof(CompareLaunch));
  fake_cuda_register_kernel("nanwatch_check_batch", Run<BatchLaunch>, sizeof(BatchLaunch));
}
