#include "shim/observe/tensor_stats.h"

#include <cstring>

#include "shim/check/scan.h"

namespace nanwatch {

void FillStats(const TensorView& view, uint8_t index, wire::TensorStats* stats) noexcept {
  std::memset(stats, 0, sizeof *stats);
  CountNonFinite(view, stats);
  stats->index = index;
}

void CountBad(const TensorView& view, BadEntry* entry) noexcept {
  wire::TensorStats stats;
  FillStats(view, 0, &stats);
  entry->elements = stats.nan + stats.pos_inf + stats.neg_inf;
  entry->kinds = static_cast<uint8_t>((stats.nan != 0 ? wire::kHasNan : 0) |
                                      (stats.pos_inf != 0 ? wire::kHasPosInf : 0) |
                                      (stats.neg_inf != 0 ? wire::kHasNegInf : 0));
}

uint32_t InternText(Emitter& emitter, const char* text) noexcept {
  return text == nullptr || *text == '\0' ? 0 : emitter.Intern(text);
}

}  // namespace nanwatch
