// SPDX-License-Identifier: Apache-2.0
#include "daemon/explain/element_types.h"

#include "daemon/correlate/wire_names.h"
#include "proto/wire/element_types.h"

namespace nanwatch {

std::optional<double> LargestOf(std::string_view dtype) {
  for (uint8_t type = 1; type < wire::kElementTypeCount; ++type) {
    if (ElementTypeName(type) == dtype) {
      return wire::LargestOf(static_cast<wire::ElementType>(type));
    }
  }
  return std::nullopt;
}

}  // namespace nanwatch
