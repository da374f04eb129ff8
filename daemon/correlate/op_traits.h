// SPDX-License-Identifier: Apache-2.0
// What the rules must know about ops by name. The job knows what an op does with values (it
// classifies). Here are only the names that change how a chain is reported.
#pragma once

#include <cstdint>
#include <string_view>

namespace nanwatch {

// Only moves values: a batch that is stacked, copied or sliced has not been consumed yet.
[[nodiscard]] bool MovesValues(std::string_view op);

// Asks something of values and makes bool of them, as a check of arguments does.
[[nodiscard]] bool Compares(std::string_view op);

// Computes with its argument number `input` as with data, which nobody masks: a matrix product, a
// convolution, a normalization. `input` may be 255, unknown.
[[nodiscard]] bool IsFactor(std::string_view op, uint32_t input);

// Takes a number as an operand, as against those that are asked to write one (masks).
[[nodiscard]] bool ComputesWithNumber(std::string_view op);

// Puts one number among others: z[:, 0] = -inf, torch.where(mask, -inf, z).
[[nodiscard]] bool PutsNumber(std::string_view op);

// Multiplies: how a GradScaler applies its scale to a loss.
[[nodiscard]] bool Scales(std::string_view op);

// "layers.0.bias" -> "layers.0"; "weight" -> "".
[[nodiscard]] std::string_view ModuleOfParameter(std::string_view parameter);

}  // namespace nanwatch
