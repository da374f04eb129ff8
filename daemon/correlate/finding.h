// SPDX-License-Identifier: Apache-2.0
// From sites, records and origins to the findings of the verdict document.
#pragma once

#include "daemon/correlate/lineage.h"
#include "verdict.pb.h"

namespace nanwatch {

[[nodiscard]] TensorStats DescribeTensor(const RecordTensor& tensor);

// What a record says, and the site that it belongs to; either may be null. `clocks`: when it was;
// null where that is not known.
[[nodiscard]] Finding DescribeRecord(const Lineage& lineage, const Site* site, const Record* record,
                                     const Clocks* clocks);

// One value as a link of a chain.
[[nodiscard]] Finding DescribeNode(const Lineage& lineage, const ValueNode& node);

}  // namespace nanwatch
