// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/secret_words.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <string_view>
#include <utility>

namespace nanwatch {
namespace {

constexpr std::string_view kMask = "***";

bool IsLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool IsUpper(char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; }

// "hub.hfToken", "HF_TOKEN" and "--hf-token" have the words hf and token in the end.
std::vector<std::string> WordsOf(std::string_view name) {
  std::vector<std::string> words;
  bool begins = true;
  for (size_t i = 0; i < name.size(); ++i) {
    if (!IsLetter(name[i]) && !IsDigit(name[i])) {
      begins = true;
      continue;
    }
    const bool is_hump =
        IsUpper(name[i]) && i > 0 && IsLetter(name[i - 1]) && !IsUpper(name[i - 1]);
    if (begins || is_hump) words.emplace_back();
    begins = false;
    words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return words;
}

template <size_t N>
bool IsOneOf(const std::string& word, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

constexpr std::array<std::string_view, 11> kSecrets = {
    "password",   "passwd",      "passphrase", "secret",    "secrets",    "apikey",
    "credential", "credentials", "bearer",     "authtoken", "accesstoken"};
// Keys and tokens of training programs that are none: --pad-token, --label-key.
constexpr std::array<std::string_view, 40> kTokensOfText = {
    "pad",    "eos",   "bos",         "sep",         "cls",      "mask",    "unk",     "special",
    "stop",   "start", "end",         "image",       "audio",    "video",   "per",     "decoder",
    "prompt", "class", "placeholder", "initializer", "instance", "trigger", "new",     "next",
    "first",  "last",  "max",         "min",         "num",      "padding", "newline", "target",
    "source", "text",  "word",        "language",    "vision",   "think",   "begin",   "extra"};
constexpr std::array<std::string_view, 18> kKeyHolders = {
    "api", "access", "secret", "private", "auth",   "account", "encryption", "signing", "ssh",
    "aws", "wandb",  "hf",     "openai",  "deploy", "license", "service",    "storage", "gpg"};
// --use_auth_token, --no-token: the option may say whether, not which.
constexpr std::array<std::string_view, 11> kOfFlags = {
    "use", "no", "is", "has", "with", "without", "enable", "disable", "require", "allow", "skip"};
// What follows these is no value of theirs.
constexpr std::array<std::string_view, 4> kNegative = {"no", "without", "disable", "skip"};
// How files end that may follow a flag.
constexpr std::array<std::string_view, 26> kFileEndings = {
    "py",   "sh",  "ipynb", "csv",  "tsv", "json",        "jsonl", "yaml",   "yml",
    "toml", "ini", "cfg",   "conf", "txt", "md",          "pt",    "pth",    "bin",
    "ckpt", "npy", "npz",   "h5",   "tar", "safetensors", "gz",    "parquet"};
constexpr std::array<std::string_view, 10> kWhether = {"true", "false", "yes",  "no", "on",
                                                       "off",  "none",  "null", "0",  "1"};

bool IsFlag(std::string_view name) {
  const std::vector<std::string> words = WordsOf(name);
  return words.size() > 1 && IsOneOf(words.front(), kOfFlags);
}

// A flag that says no.
bool IsNegative(std::string_view name) {
  const std::vector<std::string> words = WordsOf(name);
  return words.size() > 1 && IsOneOf(words.front(), kNegative);
}

bool IsFileInForm(std::string_view word) {
  const size_t dot = word.rfind('.');
  return dot != std::string_view::npos && dot > 0 &&
         IsOneOf(std::string(word.substr(dot + 1)), kFileEndings);
}

bool NamesASecret(std::string_view name) {
  const std::vector<std::string> words = WordsOf(name);
  if (words.empty()) return false;
  const std::string& last = words.back();
  const std::string before = words.size() > 1 ? words[words.size() - 2] : "";
  if (IsOneOf(last, kSecrets)) return true;
  // PWD, OLDPWD and --pwd are directories; MYSQL_PWD, --db-pwd and --dbpwd are none.
  if (last.ends_with("pwd")) return words.size() > 1 || (last != "pwd" && last != "oldpwd");
  if (last == "token") return !IsOneOf(before, kTokensOfText);
  const bool is_variable =
      std::none_of(name.begin(), name.end(), [](char c) { return IsLetter(c) && !IsUpper(c); });
  return last == "key" && words.size() > 1 && (is_variable || IsOneOf(before, kKeyHolders));
}

// A password may be any word; of a token, and of what says whether, some values are answers.
bool IsAnswer(std::string_view name, std::string_view value) {
  const std::vector<std::string> words = WordsOf(name);
  if (words.empty() || (words.back() != "token" && !IsFlag(name))) return false;
  std::string lower(value);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return IsOneOf(lower, kWhether);
}

bool IsOfToken(char c) { return IsLetter(c) || IsDigit(c) || c == '_' || c == '-'; }

// Tokens that say by their first letters what they are.
void MaskKnownTokens(std::string& word) {
  constexpr std::array<std::string_view, 12> kPrefixes = {
      "hf_", "ghp_",  "gho_",  "ghs_", "github_pat_", "glpat-",
      "sk-", "xoxb-", "xoxp-", "AKIA", "ASIA",        "eyJhbGciOi"};
  constexpr size_t kLengthMin = 16;  // behind the prefix
  for (const std::string_view prefix : kPrefixes) {
    for (size_t at = word.find(prefix); at != std::string::npos; at = word.find(prefix, at + 1)) {
      if (at > 0 && IsOfToken(word[at - 1])) continue;
      const size_t begin = at + prefix.size();
      size_t end = begin;
      while (end < word.size() && (IsOfToken(word[end]) || word[end] == '.')) ++end;
      const bool has_digit = std::any_of(word.begin() + static_cast<ptrdiff_t>(begin),
                                         word.begin() + static_cast<ptrdiff_t>(end), IsDigit);
      if (end - begin >= kLengthMin && has_digit) word.replace(begin, end - begin, kMask);
    }
  }
}

// scheme://user:password@host
void MaskUrlPasswords(std::string& word) {
  for (size_t at = word.find("://"); at != std::string::npos; at = word.find("://", at + 3)) {
    const size_t begin = at + 3;
    const size_t end = std::min(word.find_first_of("/?# \t\"'", begin), word.size());
    const size_t host = word.substr(0, end).rfind('@');
    if (host == std::string::npos || host < begin) continue;
    const size_t colon = word.find(':', begin);
    if (colon < host) word.replace(colon + 1, host - colon - 1, kMask);
  }
}

// NAME=VALUE, also in the query of an address and in a list separated by commas or blanks.
void MaskAssignments(std::string& word) {
  for (size_t equals = word.find('='); equals != std::string::npos;
       equals = word.find('=', equals + 1)) {
    size_t begin = equals;
    while (begin > 0 &&
           std::string_view("?&;, \t\n\"'({").find(word[begin - 1]) == std::string_view::npos)
      --begin;
    const std::string_view name = std::string_view(word).substr(begin, equals - begin);
    if (!NamesASecret(name)) continue;
    const bool is_listed = begin > 0;
    const size_t end =
        is_listed ? std::min(word.find_first_of("&;, \t\n", equals + 1), word.size()) : word.size();
    if (end == equals + 1 ||
        IsAnswer(name, std::string_view(word).substr(equals + 1, end - equals - 1)))
      continue;
    word.replace(equals + 1, end - equals - 1, kMask);
  }
}

bool IsOption(std::string_view word) { return word.size() > 1 && word[0] == '-'; }

// -c, -lc: the next word is a script of its own.
bool IsBeforeScript(std::string_view word) {
  return word.size() > 1 && word.size() <= 4 && word[0] == '-' && word[1] != '-' &&
         word.back() == 'c' && std::all_of(word.begin() + 1, word.end(), IsLetter);
}

// A script as a shell splits it: words, in which quotes may be, and what is between them, in turns;
// the first is a word.
std::vector<std::string> SplitScript(std::string_view script) {
  constexpr std::string_view kBetween = " \t\n;&|()<>";
  std::vector<std::string> parts(1);
  char quote = 0;
  bool in_word = true;
  for (const char c : script) {
    const bool is_between = quote == 0 && kBetween.find(c) != std::string_view::npos;
    if (in_word == is_between) {
      parts.emplace_back();
      in_word = !is_between;
    }
    parts.back() += c;
    if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    }
  }
  return parts;
}

std::string ScriptWithoutSecrets(const std::string& script) {
  std::vector<std::string> parts = SplitScript(script);
  std::vector<std::string> words;
  for (size_t i = 0; i < parts.size(); i += 2) words.push_back(std::move(parts[i]));
  words = WithoutSecrets(std::move(words));
  std::string masked;
  for (size_t i = 0; i < parts.size(); ++i) masked += i % 2 == 0 ? words[i / 2] : parts[i];
  return masked;
}

}  // namespace

std::vector<std::string> WithoutSecrets(std::vector<std::string> words) {
  bool next_is_secret = false;
  bool next_is_script = false;
  std::string flag;  // the word before, where it may have a value or none
  for (std::string& word : words) {
    const std::string behind = std::exchange(flag, "");
    const bool has_value = behind.empty() || !(IsFileInForm(word) || IsAnswer(behind, word));
    if (next_is_secret && !IsOption(word) && has_value) {
      word = kMask;
      next_is_secret = false;
      continue;
    }
    if (std::exchange(next_is_script, IsBeforeScript(word))) {
      next_is_secret = false;
      if (word.find_first_of(" \t\n") != std::string::npos) {
        word = ScriptWithoutSecrets(word);
        continue;
      }
    }
    next_is_secret = IsOption(word) && word.find('=') == std::string::npos && !IsNegative(word) &&
                     NamesASecret(word);
    if (next_is_secret && IsFlag(word)) flag = word;
    MaskAssignments(word);
    MaskUrlPasswords(word);
    MaskKnownTokens(word);
  }
  return words;
}

}  // namespace nanwatch
