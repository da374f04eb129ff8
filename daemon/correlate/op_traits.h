// The little that the rules must know of ops by name. What an op does with values is the job's to
// know (it classifies); here stand only the names that change how a chain is told.
#pragma once

#include <string_view>

namespace nanwatch {

// Only moves values: a batch that is stacked, copied or sliced has not been consumed yet.
[[nodiscard]] bool MovesValues(std::string_view op);

// Multiplies: how a GradScaler applies its scale to a loss.
[[nodiscard]] bool Scales(std::string_view op);

// "layers.0.bias" -> "layers.0"; "weight" -> "".
[[nodiscard]] std::string_view ModuleOfParameter(std::string_view parameter);

}  // namespace nanwatch
