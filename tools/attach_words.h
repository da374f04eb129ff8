// SPDX-License-Identifier: Apache-2.0
// What `attach` and `detach` say of each process, for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/attach_targets.h"

namespace nanwatch {

// A line, with its end.
[[nodiscard]] std::string AsLine(const AttachTarget& target, const AttachOptions& options);

// nanwatch.attach/1. `loaded`: how the library came into the process just now, "" it was there.
[[nodiscard]] nlohmann::ordered_json AttachDocument(const std::vector<AttachTarget>& targets,
                                                    const AttachOptions& options,
                                                    const std::string& loaded,
                                                    const Refusal& refusal);

}  // namespace nanwatch
