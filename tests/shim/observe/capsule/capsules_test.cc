// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/capsule/capsules.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "shim/check/scan.h"
#include "tests/shim/observe/observed_training.h"

namespace nanwatch {
namespace {

using Json = nlohmann::json;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class CapsulesTest : public testing::Test {
 protected:
  CapsulesTest() {
    capsules_.Set({.on = true,
                   .directory = directory(),
                   .bytes_max = wire::kCapsuleBytesMax,
                   .python = "/venv/bin/python",
                   .say = nullptr});
  }
  ~CapsulesTest() override { std::filesystem::remove_all(directory()); }

  [[nodiscard]] std::string directory() const {
    return testing::TempDir() + "capsules-" + std::to_string(getpid());
  }
  // As the begin of an op, its outermost. The caller holds the arguments until its end.
  void Begin(const char* op, const char* overload, std::vector<c10::IValue> arguments) {
    Frame& frame = on_.thread.frames[0];
    frame = {};
    frame.op = &on_.Op(op, overload);
    frame.inputs_seen = true;
    held_ = std::move(arguments);
    capsules_.OnBegin(&on_.thread, frame,
                      c10::ArrayRef<const c10::IValue>(held_.data(), held_.size()));
  }
  // As its end.
  void LeaveBad(const at::Tensor& output, uint32_t site = 1,
                wire::FindingClass finding_class = wire::FindingClass::kProduce) {
    const BadOutput bad{ObservedTraining::Plain(output), 0, false};
    wire::RecordHeader header{};
    header.ticket = ++ticket_;
    const Location place{};
    capsules_.OnPossibleOrigin({.thread = &on_.thread,
                                .frame = on_.thread.frames[0],
                                .outputs = &bad,
                                .count = 1,
                                .place = place,
                                .header = header,
                                .finding_class = finding_class,
                                .kinds = NonFiniteKinds(bad.tensor.view),
                                .op = on_.thread.frames[0].op->name,
                                .site = site,
                                .seen = 1,
                                .emitter = on_.emitter});
  }
  void Divide(uint32_t site) {
    const at::Tensor zero = at::zeros({1});
    Begin("aten::div", "Tensor", {zero, zero});
    LeaveBad(at::full({1}, kNan), site);
  }
  [[nodiscard]] std::vector<std::string> Folders() const {
    std::vector<std::string> names;
    if (!std::filesystem::exists(directory())) return names;
    for (const auto& entry : std::filesystem::directory_iterator(directory())) {
      names.push_back(entry.path());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  [[nodiscard]] static std::string ContentOf(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  [[nodiscard]] Json Manifest(size_t i = 0) const {
    return Json::parse(ContentOf(Folders().at(i) + "/manifest.json"));
  }
  [[nodiscard]] std::vector<int> Tickets() const {
    std::vector<int> tickets;
    for (size_t i = 0; i < Folders().size(); ++i) {
      tickets.push_back(Manifest(i)["origin"]["ticket"].get<int>());
    }
    return tickets;
  }
  // The numbers of a part of the tensors' file.
  [[nodiscard]] std::vector<float> Part(const std::string& name) const {
    const std::string file = ContentOf(Folders().at(0) + "/tensors.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    const Json offsets = Json::parse(file.substr(8, length))[name]["data_offsets"];
    const auto begin = offsets[0].get<size_t>();
    std::vector<float> numbers((offsets[1].get<size_t>() - begin) / sizeof(float));
    std::memcpy(numbers.data(), file.data() + 8 + length + begin, numbers.size() * sizeof(float));
    return numbers;
  }

  ObservedTraining on_;
  Capsules capsules_;
  std::vector<c10::IValue> held_;
  uint64_t ticket_ = 0;
};

TEST_F(CapsulesTest, DescribeTheCall) {
  const at::Tensor a = at::arange(6, at::kFloat).reshape({2, 3});
  Begin("aten::add", "Tensor", {a.t(), a.t(), 2.5});
  LeaveBad(at::full({3, 2}, kNan));
  const Json manifest = Manifest();
  EXPECT_EQ(manifest["schema"], "nanwatch.capsule/1");
  EXPECT_TRUE(manifest["complete"]);
  EXPECT_EQ(manifest["op"]["name"], "aten::add");
  EXPECT_EQ(manifest["op"]["overload"], "Tensor");
  EXPECT_EQ(manifest["origin"]["class"], "produce");
  EXPECT_EQ(manifest["python"], "/venv/bin/python");
  EXPECT_EQ(manifest["arguments"],
            Json::parse(R"([{"tensor": 0}, {"tensor": 1}, {"float": "2.5"}])"));
  EXPECT_EQ(manifest["storages"].size(), 1u) << "both arguments lie in one";
  EXPECT_EQ(manifest["tensors"][0]["size"], Json({3, 2}));
  EXPECT_EQ(manifest["tensors"][0]["stride"], Json({1, 3}));
  EXPECT_EQ(Part("storage.0"), (std::vector<float>{0, 1, 2, 3, 4, 5}));
}

TEST_F(CapsulesTest, KeepOnlyTheMemoryThatAnArgumentReaches) {
  const at::Tensor part = at::arange(8, at::kFloat).slice(0, 2, 5);
  Begin("aten::log", "", {part});
  LeaveBad(at::full({3}, kNan));
  EXPECT_EQ(Part("storage.0"), (std::vector<float>{2, 3, 4}));
  EXPECT_EQ(Manifest()["storages"][0]["begin"], 8);
  EXPECT_EQ(Manifest()["tensors"][0]["offset"], 2);
}

TEST_F(CapsulesTest, KeepWhatTheOpOverwrites) {
  at::Tensor self = at::ones({2});
  Begin("aten::div_", "Tensor", {self, at::zeros({2})});
  self.fill_(kInf);
  LeaveBad(self);
  EXPECT_EQ(Part("storage.0"), (std::vector<float>{1, 1}));
  EXPECT_EQ(Part("output.0"), (std::vector<float>{kInf, kInf}));
  EXPECT_EQ(Manifest()["storages"][0]["content"], "before");
  EXPECT_EQ(Manifest()["outputs"][0]["argument_tensor"], 0);
}

TEST_F(CapsulesTest, SayThatALargeOverwrittenArgumentIsNotWhatItWas) {
  at::Tensor self = at::ones({1 << 16});
  Begin("aten::div_", "Tensor", {self, at::zeros({1})});
  self.fill_(kInf);
  LeaveBad(self);
  EXPECT_EQ(Manifest()["storages"][0]["content"], "after");
}

TEST_F(CapsulesTest, WriteOutputsInTheOrderOfTheirIndices) {
  const at::Tensor a = at::ones({2, 2});
  Begin("aten::mul", "Tensor", {a, a});
  at::Tensor output = at::arange(4, at::kFloat).reshape({2, 2});
  output[0][0] = kNan;
  LeaveBad(output.t());
  const std::vector<float> written = Part("output.0");
  ASSERT_EQ(written.size(), 4u);
  EXPECT_EQ(written[1], 2) << "the element below the first, of the transposed";
}

TEST_F(CapsulesTest, HoldNoTensor) {
  at::Tensor a = at::ones({2});
  Begin("aten::log", "", {a});
  held_.clear();
  EXPECT_EQ(a.use_count(), 1u);
}

TEST_F(CapsulesTest, SayWhyACallCannotBeMadeAgain) {
  const at::Tensor sparse = at::eye(2).to_sparse();
  Begin("aten::mm", "", {sparse, at::ones({2, 2})});
  LeaveBad(at::full({2, 2}, kNan));
  EXPECT_FALSE(Manifest()["complete"]);
  EXPECT_NE(Manifest()["why_not"].get<std::string>().find("dense"), std::string::npos);
}

TEST_F(CapsulesTest, KeepToTheLimit) {
  capsules_.Set(
      {.on = true, .directory = directory(), .bytes_max = 16, .python = "", .say = nullptr});
  Begin("aten::log", "", {at::ones({100})});
  LeaveBad(at::full({100}, kNan));
  EXPECT_FALSE(Manifest()["complete"]);
  EXPECT_NE(Manifest()["why_not"].get<std::string>().find("limit"), std::string::npos);
}

TEST_F(CapsulesTest, NameDtypesAndUndefinedTensors) {
  Begin("aten::_softmax", "", {at::ones({2}), 0, false});
  LeaveBad(at::full({2}, kNan), 1);
  EXPECT_EQ(Manifest()["arguments"], Json::parse(R"([{"tensor": 0}, {"int": 0}, false])"));
  Begin("aten::sum", "dim_IntList",
        {at::ones({2}), std::vector<int64_t>{0}, false, c10::IValue(at::kDouble)});
  LeaveBad(at::full({2}, kNan), 2);
  EXPECT_EQ(Manifest(1)["arguments"],
            Json::parse(R"([{"tensor": 0}, [{"int": 0}], false, {"dtype": "float64"}])"));
  Begin("aten::native_layer_norm", "",
        {at::ones({2}), std::vector<int64_t>{2}, at::Tensor(), c10::IValue(), 1e-5});
  LeaveBad(at::full({2}, kNan), 3);
  EXPECT_TRUE(Manifest(2)["arguments"][2].is_null());
  EXPECT_TRUE(Manifest(2)["arguments"][3].is_null());
}

TEST_F(CapsulesTest, KeepWhatIsReadWhereTheResultGoes) {
  at::Tensor x = at::ones({2});
  Begin("aten::log", "out", {x, x});
  x.fill_(kNan);
  LeaveBad(x);
  EXPECT_EQ(Manifest()["storages"][0]["content"], "before");
  EXPECT_EQ(Part("storage.0"), (std::vector<float>{1, 1}));
}

TEST_F(CapsulesTest, RefuseAnOpThatDrawsRandomNumbers) {
  Begin("aten::native_dropout", "", {at::ones({2}), 0.5, true});
  LeaveBad(at::full({2}, kNan));
  EXPECT_FALSE(Manifest()["complete"]);
}

TEST_F(CapsulesTest, RefuseAnArgumentWhoseMemoryTheOpHasExchanged) {
  at::Tensor x = at::ones({2});
  Begin("aten::div_", "Tensor", {x, at::zeros({2})});
  x.set_(at::full({3}, kNan));
  LeaveBad(x);
  EXPECT_FALSE(Manifest()["complete"]);
}

TEST_F(CapsulesTest, LetGoOfEverythingWhenTheOpHasEnded) {
  const at::Tensor x = at::ones({2});
  Begin("aten::log", "", {x});
  held_.clear();
  capsules_.OnEnd(on_.thread, on_.thread.frames[0]);
  EXPECT_EQ(x.weak_use_count(), 1u) << "the one that all strong references have together";
}

// ---- which of them stay

TEST_F(CapsulesTest, KeepOneOfEachPlaceInTheProgram) {
  Divide(1);
  Divide(1);
  EXPECT_EQ(Tickets(), std::vector<int>{1});
}

TEST_F(CapsulesTest, KeepTheFirstOfAStep) {
  for (uint32_t site = 1; site <= 6; ++site) Divide(site);
  EXPECT_EQ(Tickets(), (std::vector<int>{1, 2, 3, 4}));
}

TEST_F(CapsulesTest, LetThoseOfAHarmlessStepGo) {
  for (uint32_t site = 1; site <= 4; ++site) Divide(site);
  capsules_.OnStep(/*harmed=*/false);
  Divide(5);
  EXPECT_EQ(Tickets(), (std::vector<int>{2, 3, 4, 5}));
}

TEST_F(CapsulesTest, KeepWhatTheFirstOfTheHarmedStepsBeganWith) {
  for (uint32_t site = 1; site <= 4; ++site) Divide(site);
  capsules_.OnStep(/*harmed=*/true);
  Divide(5);
  capsules_.OnStep(/*harmed=*/true);
  Divide(1);
  EXPECT_EQ(Tickets(), (std::vector<int>{1, 2, 3, 4}));
  capsules_.OnStep(/*harmed=*/false);
  Divide(6);
  EXPECT_EQ(Tickets(), (std::vector<int>{2, 3, 4, 7})) << "that was over";
}

TEST_F(CapsulesTest, GiveAMaskOnePlaceAlone) {
  const at::Tensor zero = at::zeros({1});
  for (uint32_t site = 1; site <= 3; ++site) {
    Begin("aten::log", "", {zero});
    LeaveBad(at::full({1}, -kInf), site);
  }
  EXPECT_EQ(Tickets(), std::vector<int>{1});
  Divide(4);
  EXPECT_EQ(Tickets(), (std::vector<int>{1, 4}));
}

}  // namespace
}  // namespace nanwatch
