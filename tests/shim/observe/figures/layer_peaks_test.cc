// SPDX-License-Identifier: Apache-2.0
// The largest result of each layer. The table is the process's: each case has layers of its own and
// begins by taking what the one before has left.
#include "shim/observe/figures/layer_peaks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <thread>
#include <vector>

#include "tests/shim/observe/figures/magnitudes.h"

namespace nanwatch {
namespace {

using Kind = Magnitude::Kind;
using wire::ElementType;

class LayerPeaksTest : public testing::Test {
 protected:
  void SetUp() override { (void)Take(); }
  static std::map<const Layer*, LayerPeaks::Peak> Take() {
    std::map<const Layer*, LayerPeaks::Peak> taken;
    LayerPeaks::Take([&taken](const LayerPeaks::Peak& peak) {
      EXPECT_TRUE(taken.emplace(peak.layer, peak).second) << "told twice";
    });
    return taken;
  }
  // Alone in what is taken.
  static LayerPeaks::Peak TakeOnly() {
    const auto taken = Take();
    EXPECT_EQ(taken.size(), 1u);
    return taken.empty() ? LayerPeaks::Peak{} : taken.begin()->second;
  }

  Layer layer_{.index = 1};
  Layer other_{.index = 700};
};

TEST_F(LayerPeaksTest, TellTheLargestResultAndTheLayer) {
  for (const float value : {1.0f, 3.5f, 2.0f}) {
    LayerPeaks::Record(&layer_, ElementType::kFloat32, OfFloat(value));
  }
  const LayerPeaks::Peak peak = TakeOnly();
  EXPECT_EQ(peak.layer, &layer_);
  EXPECT_EQ(peak.type, ElementType::kFloat32);
  EXPECT_EQ(peak.largest, 3.5);
  EXPECT_FALSE(peak.at_least);
}

TEST_F(LayerPeaksTest, BeginAnewOnceTheyAreTaken) {
  LayerPeaks::Record(&layer_, ElementType::kFloat32, OfFloat(100));
  EXPECT_EQ(TakeOnly().largest, 100);
  EXPECT_TRUE(Take().empty());
  LayerPeaks::Record(&layer_, ElementType::kFloat32, OfFloat(2));
  EXPECT_EQ(TakeOnly().largest, 2);
}

TEST_F(LayerPeaksTest, OfLayersFarApartInTheTableAreToldEach) {
  LayerPeaks::Record(&other_, ElementType::kFloat32, OfFloat(7));
  LayerPeaks::Record(&layer_, ElementType::kFloat32, OfFloat(5));
  const auto taken = Take();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken.at(&layer_).largest, 5);
  EXPECT_EQ(taken.at(&other_).largest, 7);
}

TEST_F(LayerPeaksTest, OfSeveralTypesTheNarrowestCountsThoughItIsTheSmaller) {
  LayerPeaks::Record(&layer_, ElementType::kFloat32, OfFloat(1e6f));
  LayerPeaks::Record(&layer_, ElementType::kFloat16, {0x5640, Kind::kLargest});  // 100
  LayerPeaks::Record(&layer_, ElementType::kFloat32, OfFloat(1e9f));
  const LayerPeaks::Peak peak = TakeOnly();
  EXPECT_EQ(peak.type, ElementType::kFloat16);
  EXPECT_EQ(peak.largest, 100);
}

TEST_F(LayerPeaksTest, SayOfASampleThatItIsOne) {
  LayerPeaks::Record(&layer_, ElementType::kFloat32, OfFloat(8, Kind::kAtLeast));
  EXPECT_TRUE(TakeOnly().at_least);
}

TEST_F(LayerPeaksTest, OfASampleAndOfAllOfAResultTheLargerIsToldAndThatItIsALowerBound) {
  LayerPeaks::Record(&layer_, ElementType::kFloat32, OfFloat(8, Kind::kAtLeast));
  LayerPeaks::Record(&layer_, ElementType::kFloat32, OfFloat(9));
  LayerPeaks::Peak peak = TakeOnly();
  EXPECT_EQ(peak.largest, 9);
  EXPECT_TRUE(peak.at_least);
  LayerPeaks::Record(&layer_, ElementType::kFloat32, OfFloat(8));
  LayerPeaks::Record(&layer_, ElementType::kFloat32, OfFloat(9, Kind::kAtLeast));
  peak = TakeOnly();
  EXPECT_EQ(peak.largest, 9);
}

TEST_F(LayerPeaksTest, ASampleOfAWiderTypeChangesNothing) {
  LayerPeaks::Record(&layer_, ElementType::kFloat16, {0x5640, Kind::kLargest});
  LayerPeaks::Record(&layer_, ElementType::kFloat32, OfFloat(1e9f, Kind::kAtLeast));
  LayerPeaks::Peak peak = TakeOnly();
  EXPECT_EQ(peak.type, ElementType::kFloat16);
  EXPECT_EQ(peak.largest, 100);
  EXPECT_FALSE(peak.at_least);
  LayerPeaks::Record(&layer_, ElementType::kFloat32, OfFloat(1e9f));
  LayerPeaks::Record(&layer_, ElementType::kFloat16, {0x5640, Kind::kAtLeast});
  peak = TakeOnly();
  EXPECT_EQ(peak.type, ElementType::kFloat16);
  EXPECT_EQ(peak.largest, 100);
  EXPECT_TRUE(peak.at_least);
}

TEST_F(LayerPeaksTest, ALayerWhoseResultsAreAllZeroIsToldToo) {
  LayerPeaks::Record(&layer_, ElementType::kFloat32, OfFloat(0));
  EXPECT_EQ(TakeOnly().largest, 0);
}

TEST_F(LayerPeaksTest, DoublesAreToldFromBelowAndNearly) {
  for (const double value : {3.14159265358979, 1.7e308, 5e-324, 2.3e-308, 1.0}) {
    LayerPeaks::Record(&layer_, ElementType::kFloat64, OfDouble(value));
    const LayerPeaks::Peak peak = TakeOnly();
    EXPECT_EQ(peak.type, ElementType::kFloat64);
    EXPECT_LE(peak.largest, value);
    if (value > 1e-300) {
      EXPECT_GE(peak.largest, value * (1 - 0x1p-19)) << value;
    }
  }
}

// 2^-24 is float16's smallest, 2^-14 its smallest normal number, 65,504 its largest.
TEST_F(LayerPeaksTest, AreTheSameNumberWhereTheyCameAsOne) {
  const std::pair<ElementType, std::vector<double>> numbers[] = {
      {ElementType::kFloat16, {0, 0x1p-24, 3 * 0x1p-24, 0x3ffp-24, 0x1p-14, 0.5, 1, 1.5, 65504}},
      {ElementType::kBFloat16, {0, 0x1p-126, 0.5, 1, 1.5, 256, 0x1.fep127}},
      {ElementType::kFloat32, {0, 0x1p-126, 1, 3.25, 0x1.fffffep127}},
      {ElementType::kFloat64, {0, 1, 3.25, 0x1p1000}},
  };
  for (const auto& [type, values] : numbers) {
    for (const double value : values) {
      LayerPeaks::RecordLargest(&layer_, type, value);
      const LayerPeaks::Peak peak = TakeOnly();
      EXPECT_EQ(peak.type, type);
      EXPECT_EQ(peak.largest, value) << static_cast<int>(type);
    }
  }
}

// Each thread has layers of its own, and the table grows under both.
TEST_F(LayerPeaksTest, OfThreadsThatRecordTogetherNoLayerIsMissed) {
  constexpr uint32_t kLayers = 4000;
  std::vector<Layer> layers(kLayers);
  for (uint32_t i = 0; i < kLayers; ++i) layers[i].index = 1000 + i;
  const auto record = [&layers](uint32_t first) {
    for (uint32_t i = first; i < kLayers; i += 2) {
      LayerPeaks::Record(&layers[i], ElementType::kFloat32, OfFloat(static_cast<float>(i + 1)));
    }
  };
  std::thread other(record, 1);
  record(0);
  other.join();
  const auto taken = Take();
  ASSERT_EQ(taken.size(), kLayers);
  for (uint32_t i = 0; i < kLayers; ++i) EXPECT_EQ(taken.at(&layers[i]).largest, i + 1);
}

}  // namespace
}  // namespace nanwatch
