// SPDX-License-Identifier: Apache-2.0
#include "tests/property/check/level_and_type.h"

namespace nanwatch {

std::vector<const char*> TestedLevels() { return {"scalar", "avx2", "avx512"}; }
std::string TestedLevelPrefix() { return ""; }

}  // namespace nanwatch
