// SPDX-License-Identifier: Apache-2.0
// From the origin of an incident to the finding that the verdict document gives for it.
#pragma once

#include <string>
#include <string_view>

#include "daemon/correlate/lineage.h"
#include "verdict.pb.h"

namespace nanwatch {

// The origin of an incident. For a batch the op, layer and step are those of the first op that
// consumed it; for a parameter or buffer `param` is its name and the layer the module that holds
// it.
[[nodiscard]] Finding DescribeOrigin(const Lineage& lineage, const Origin& origin);

// Whether the origin is a parameter that code which nobody observes has written, in a run in which
// no op was seen to update any: its updates were not seen either, and the step is not known.
// `clocks`: when it was first computed with; may be null.
[[nodiscard]] bool UpdatesWereUnseen(const Lineage& lineage, const Origin& origin,
                                     const Clocks* clocks);

// Whether it is a parameter or buffer that was found bad when steps which were not checked were
// over: it went bad by then.
[[nodiscard]] bool WasReadLater(const Finding& origin);

// Whether another op than the named one may have made it: ops before it were not checked, or its
// record was lost. Else it is not exact for want of its inputs, and right in all likelihood.
[[nodiscard]] bool MayBeAnotherOp(const Finding& origin);

// The kind of an origin, as the document names it.
[[nodiscard]] std::string_view OriginKind(const Origin& origin);

// The name of the parameter or buffer that it is about, "" when it is about none or the name is not
// known.
[[nodiscard]] std::string OriginParameter(const Origin& origin);

}  // namespace nanwatch
