// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/capsule/torch_flags.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/version.h>

#include <limits>

#include "shim/observe/capsule/values_text.h"

namespace nanwatch {
namespace {

// Whether results too small for a normal number become 0 on this thread.
bool FlushesDenormals() {
  volatile double smallest = std::numeric_limits<double>::min();
  return smallest / 2 == 0;
}

}  // namespace

void WriteTorchFlags(JsonText* json) {
  const at::Context& context = at::globalContext();
  json->Key("torch").Open('{').Key("version").Text(TORCH_VERSION);
  json->Key("cpu_capability").Text(at::get_cpu_capability()).Close('}');
  json->Key("flags").Open('{');
  json->Key("grad").Bool(c10::GradMode::is_enabled());
  json->Key("inference").Bool(c10::InferenceMode::is_enabled());
  json->Key("threads").Integer(at::get_num_threads());
  json->Key("deterministic").Bool(context.deterministicAlgorithms());
  json->Key("deterministic_warn_only").Bool(context.deterministicAlgorithmsWarnOnly());
  json->Key("mkldnn").Bool(context.userEnabledMkldnn());
  json->Key("flush_denormal").Bool(FlushesDenormals());
  json->Key("default_dtype").Text(DtypeName(c10::typeMetaToScalarType(c10::get_default_dtype())));
  json->Close('}');
}

}  // namespace nanwatch
