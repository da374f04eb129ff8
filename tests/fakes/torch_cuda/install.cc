// SPDX-License-Identifier: Apache-2.0
// A FAKE CUDA device inside the real PyTorch, for tests only: no GPU, no driver, no CUDA.
//
// Tensors with device cuda:0 lie in host memory. Operators go through the real dispatcher, autograd
// runs on the engine's thread for the device, autocast and the gradient scaler for cuda are the
// real ones; at the very end stands the CPU's kernel (redirect.cc). Device guard, streams, memory
// and the hooks of libtorch_cpu are ours (fake_device.cc), the driver is tests/fakes/cuda, and what
// Python asks the runtime about itself is answered by run.py. Nothing here knows of nanwatch, apart
// from the check kernels, which the fake driver runs because it cannot run PTX.
//
// An op is done when it returns, and so a check kernel looks when it is launched. But its result
// and progress are seen only when the program waits for the device (.item(), .cpu(), synchronize),
// or after NANWATCH_FAKE_LAG further launches (50); so it is with what a non-blocking copy to
// pinned memory brings (host_copies.h). NANWATCH_FAKE_DEVICES (1) is the number of devices.
// NANWATCH_FAKE_OWN_LAG_MS (2) is how long what runs on streams of the driver's own making takes.
// NANWATCH_FAKE_END_US is how long each launch takes that is left when the program ends (0: none
// is left).
// NANWATCH_FAKE_END_MS (0) is how long the driver goes on ending while the process's other threads
// run. NANWATCH_FAKE_STUCK names streams of cuda:0 by digits, 0 the default one, 1 to 3 those of
// the pool in the order in which they are given out, on which what is launched never runs (what ops
// make is there all the same). NANWATCH_FAKE_NO_REGISTRATION=1: memory of the program's cannot be
// registered with the driver. NANWATCH_FAKE_CUPTI_LIBRARY names the library of tests/fakes/cupti,
// which then takes the place of CUPTI, and is told of one kernel for each op that computes.
//
//   tests/fakes/torch_cuda/run.py PROGRAM [ARGS]                   as python PROGRAM [ARGS]
//   tests/fakes/torch_cuda/run.py --default-device PROGRAM [ARGS]  with tensors on cuda by default
//
// It is loaded after `import torch`, with RTLD_GLOBAL, so that aoti_torch_get_current_cuda_stream
// is found here by dlsym(RTLD_DEFAULT). A thread's current streams end with its other
// thread-locals, the main thread's before exit handlers run, and are garbage then. Collectives are
// gloo's, and look like NCCL's (collectives.cc). Not real: time, memory limits, errors about
// tensors of two devices, sparse tensors. Of graphs (graphs.h) a graph's own pool of memory: what
// is made in a capture has memory of its own as long as the process runs.
#include <cstdlib>

#include "tests/fakes/torch_cuda/collectives.h"
#include "tests/fakes/torch_cuda/cuda_only.h"
#include "tests/fakes/torch_cuda/fake_device.h"
#include "tests/fakes/torch_cuda/redirect.h"

extern "C" __attribute__((visibility("default"))) void fake_torch_cuda_install(int devices) {
  nanwatch::fake::InstallDevice(devices);
  nanwatch::fake::ChooseKnownKernels();
  nanwatch::fake::RedirectOperators();
  nanwatch::fake::InstallCollectives();
}
