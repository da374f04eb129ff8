// SPDX-License-Identifier: Apache-2.0
#include "daemon/fleet/held_row.h"

#include <gtest/gtest.h>

namespace nanwatch {
namespace {

constexpr char kDaemon[] = "0f8fad5b-d9cb-469f-a165-70867728950e";

TEST(HeldRowTest, IsTheSameAfterItWasText) {
  const FleetRow step = {.daemon = kDaemon,
                         .sequence = 1'764'203'000'000'001,
                         .recorded_ns = 1'764'203'000'000'000'000,
                         .kind = FleetKind::kStep,
                         .job = "train",
                         .run = "00000000000000ab"};
  FleetRow state = step;
  state.kind = FleetKind::kRun;
  EXPECT_EQ(ToText(NameOf(step)), std::string(kDaemon) + " 1764203000000001 1764203000000000000");
  EXPECT_EQ(ToText(NameOf(state)), ToText(NameOf(step)) + " 00000000000000ab");
  for (const FleetRow& row : {step, state})
    EXPECT_EQ(ParseHeldRow(ToText(NameOf(row))), NameOf(row));
}

TEST(HeldRowTest, OtherTextIsNone) {
  const std::string daemon = kDaemon;
  for (const std::string& text :
       {std::string(), daemon, daemon + " 1", daemon + " 0 5", daemon + " -1 5", daemon + " 1 5 ",
        daemon + "  1 5", daemon + " 01 5", daemon + " 1 9223372036854775808",
        daemon + " 9223372036854775808 5", daemon + " 1 5 00ab", daemon + " 1 5 00000000000000AB",
        daemon + " 1 5 00000000000000ab more", std::string("me 1 5"), daemon + "' 1 5"}) {
    EXPECT_FALSE(ParseHeldRow(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace nanwatch
