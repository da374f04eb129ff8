// SPDX-License-Identifier: Apache-2.0
// For targets whose inputs are messages: one that cannot be parsed is not worth a line each time.
#include <google/protobuf/stubs/logging.h>

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}
