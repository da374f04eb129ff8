// SPDX-License-Identifier: Apache-2.0
#include "shim/observe/capsule/json_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace nanwatch {
namespace {

std::string Written(std::string_view text) {
  JsonText json;
  json.Text(text);
  return json.text();
}

TEST(JsonText, NestsAndSeparates) {
  JsonText json;
  json.Open('{').Key("a").Open('[').Integer(1).Integer(-2).Close(']');
  json.Key("b").Open('{').Close('}').Key("c").Null().Key("d").Bool(true).Close('}');
  EXPECT_EQ(json.text(), R"({"a":[1,-2],"b":{},"c":null,"d":true})");
}

TEST(JsonText, EscapesWhatEndsAString) {
  EXPECT_EQ(Written("a\"b\\c\n\x01"), R"("a\"b\\c\u000a\u0001")");
}

TEST(JsonText, KeepsUtf8AndReplacesEverythingElse) {
  EXPECT_EQ(Written("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"),
            "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"");
  constexpr char kReplaced[] = "\"\xEF\xBF\xBD\"";
  EXPECT_EQ(Written("\xFF"), kReplaced);
  EXPECT_EQ(Written("\xC0"), kReplaced);
  EXPECT_EQ(Written("\xC3"), kReplaced) << "cut short";
  EXPECT_EQ(Written("\xED\xA0\x80").size(), 2 + 3 * 3u) << "half of a pair";
}

TEST(JsonText, WritesNumbersThatReadAsTheSameAgain) {
  for (const double number : {0.1, 1e300, -1.0 / 3, std::numeric_limits<double>::denorm_min()}) {
    JsonText json;
    json.NumberText(number);
    EXPECT_EQ(std::strtod(json.text().c_str() + 1, nullptr), number);
  }
  JsonText json;
  json.Open('[').NumberText(NAN).NumberText(INFINITY).NumberText(-INFINITY).Close(']');
  EXPECT_EQ(json.text(), R"(["NaN","Infinity","-Infinity"])");
}

}  // namespace
}  // namespace nanwatch
