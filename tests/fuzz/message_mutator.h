// SPDX-License-Identifier: Apache-2.0
// Changes protobuf messages field by field, for libFuzzer: bytes that are changed at random are
// hardly ever the message that they were.
#pragma once

#include <google/protobuf/message.h>

#include <random>

namespace nanwatch {

// A few changes: numbers that refer to each other or to nothing, words of ops, layers and
// terminals, messages added and removed. Text is UTF-8: protobuf reads no other.
void MutateMessage(google::protobuf::Message& message, std::mt19937_64& random);

}  // namespace nanwatch
