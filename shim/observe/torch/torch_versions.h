// SPDX-License-Identifier: Apache-2.0
// What differs between the versions of LibTorch that an observer can be built for, as macros, and
// nowhere else as far as the preprocessor is needed. Oldest built: 2.6; newest: 2.15.
#pragma once

#include <torch/version.h>

#define NANWATCH_TORCH_SINCE(major, minor) \
  (TORCH_VERSION_MAJOR > (major) ||        \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

// c10::ScalarType::Float8_e8m0fnu.
#define NANWATCH_TORCH_HAS_E8M0 NANWATCH_TORCH_SINCE(2, 7)
// A torch.Tensor object holds its at::Tensor plainly, no longer in a c10::MaybeOwned.
#define NANWATCH_TORCH_HOLDS_TENSOR_PLAINLY NANWATCH_TORCH_SINCE(2, 10)
