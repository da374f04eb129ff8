// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/stats_decoder.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "daemon/ingest/record_decoder.h"

namespace nanwatch {
namespace {

void DecodeParameter(const wire::StatsParameter& from, const NameCache& names, ParameterStats& to) {
  using wire::StatsParameter;
  const auto is = [&from](StatsParameter::Flag flag) { return (from.flags & flag) != 0; };
  to.set_name(names.Text(from.name));
  if (to.name().empty()) to.set_name("parameter " + std::to_string(from.position));
  to.set_root(names.Text(from.root));
  to.set_position(from.position);
  to.set_numel(from.numel);
  to.set_element_type(from.element_type < wire::kElementTypeCount ? from.element_type : 0);
  to.set_dims(from.dims);
  to.set_has_gradient(is(StatsParameter::kHasGradient));
  if (is(StatsParameter::kGradientRead)) {
    to.set_gradient_mean(from.gradient_mean);
    to.set_gradient_std(from.gradient_std);
    to.set_gradient_max_abs(from.gradient_max_abs);
    to.set_gradient_norm(from.gradient_norm);
    const uint64_t zeros = std::min(from.gradient_zeros, from.numel);
    to.set_gradient_zero_share(
        from.numel == 0 ? 0 : static_cast<double>(zeros) / static_cast<double>(from.numel));
  }
  if (is(StatsParameter::kUpdateRead)) {
    to.set_update_norm(from.update_norm);
    to.set_weight_norm(from.weight_norm);
    to.set_sampled(from.sampled);
  }
  if (is(StatsParameter::kEps)) to.set_eps(from.eps);
  to.set_fused(is(StatsParameter::kFused));
}

}  // namespace

StatsSnapshot DecodeStats(const wire::StatsCopy& copy, const NameCache& names) {
  StatsSnapshot snapshot;
  snapshot.set_number(copy.snapshot);
  snapshot.set_time_ns(copy.time_ns);
  *snapshot.mutable_clocks() = DecodeClocks(copy.head.clocks);
  snapshot.set_optimizer(copy.head.optimizer);
  snapshot.set_optimizer_class(names.Text(copy.head.optimizer_class));
  snapshot.set_interval(copy.head.interval);
  snapshot.set_left_out(copy.head.left_out);
  snapshot.set_on_gpu(copy.head.on_gpu);
  snapshot.set_unreadable(copy.head.unreadable);
  for (const wire::StatsParameter& parameter : copy.parameters) {
    DecodeParameter(parameter, names, *snapshot.add_parameters());
  }
  for (const wire::StatsLayer& from : copy.layers) {
    if (!std::isfinite(from.largest) || from.largest < 0) continue;
    LayerStats& layer = *snapshot.add_layers();
    layer.set_layer(names.Text(from.layer));
    layer.set_root(names.Text(from.root));
    layer.set_element_type(from.element_type < wire::kElementTypeCount ? from.element_type : 0);
    layer.set_largest(from.largest);
    layer.set_at_least(from.at_least != 0);
  }
  return snapshot;
}

}  // namespace nanwatch
