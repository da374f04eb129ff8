// SPDX-License-Identifier: Apache-2.0
// Masks what looks like a secret in a command line, before it is kept or shown anywhere. Pure.
//
//   train.py --token=abc --password abc HF_TOKEN=abc https://me:abc@host/x?key=abc
//   train.py --token=*** --password *** HF_TOKEN=*** https://me:***@host/x?key=***
//
// It goes by names and by the forms of well-known tokens. A secret without either stays: a command
// line is no place for one, because every process of the host can read it.
#pragma once

#include <string>
#include <vector>

namespace nanwatch {

[[nodiscard]] std::vector<std::string> WithoutSecrets(std::vector<std::string> words);

}  // namespace nanwatch
