// SPDX-License-Identifier: Apache-2.0
// The samples that a DataLoader was fetching when an origin was found, as a person reads them.
#pragma once

#include <string>

#include "verdict.pb.h"

namespace nanwatch {

// "dataset index 17 was being fetched, for a batch of 8", "a batch of 3 was being fetched: dataset
// indices 3, 17, 40"; "" where nothing is known.
[[nodiscard]] std::string SamplesText(const Finding& origin);

// A row of a report; "" where nothing is known.
[[nodiscard]] std::string SampleRow(const Finding& origin, int width_columns);

}  // namespace nanwatch
