// SPDX-License-Identifier: Apache-2.0
// The terminal while a verb fills it: the alternate screen, keys as they are typed, and the way
// back from every end.
//
// Given back by the destructor, by the signals that end a process (the handler gives back, then
// dies of the same signal), by std::terminate, and around Ctrl-Z. What nobody can do is give it
// back after SIGKILL. Ctrl-C and Ctrl-Z stay signals.
//
// At most one at a time, because a signal handler can be given nothing; one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace nanwatch {

enum class Key : uint8_t { kCharacter, kUp, kDown, kPageUp, kPageDown, kHome, kEnd };

struct KeyPress {
  Key key = Key::kCharacter;
  char character = '\0';  // of kCharacter

  bool operator==(const KeyPress&) const = default;
};

// From the bytes a terminal sends to keys. A sequence may arrive in pieces; those that mean nothing
// to us are passed over as a whole.
class KeyDecoder {
 public:
  [[nodiscard]] std::vector<KeyPress> Feed(std::string_view bytes);

 private:
  std::string pending_;  // the beginning of a sequence
};

struct ScreenSize {
  size_t lines = 24;
  size_t columns = 80;

  bool operator==(const ScreenSize&) const = default;
};

// Of the terminal at `fd`; LINES and COLUMNS, or 24 by 80, where it does not say.
[[nodiscard]] ScreenSize SizeOfTerminal(int fd);

class Screen {
 public:
  // Whether stdin and stdout are a terminal on which a screen can be drawn.
  [[nodiscard]] static bool IsPossible();
  // Takes the terminal over.
  Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  ~Screen();

  [[nodiscard]] ScreenSize size() const;

  // Shows these lines, as many as there are on the screen; sends only those that changed. False
  // when the terminal is gone.
  bool Show(const std::vector<std::string>& lines);

  enum class Event : uint8_t {
    kTime,    // nothing happened in time
    kKey,     // `key()` was pressed
    kRedraw,  // the size changed, or the terminal is ours again after a stop
    kGone,    // nobody can type any more
  };
  // Stops this process when Ctrl-Z was pressed, and comes back with kRedraw.
  [[nodiscard]] Event Wait(std::chrono::milliseconds timeout);
  [[nodiscard]] KeyPress key() const { return key_; }

 private:
  [[nodiscard]] Event TakeSignal();
  void StopAsAsked();

  int signals_ = -1;  // a signalfd
  KeyDecoder decoder_;
  std::deque<KeyPress> keys_;
  KeyPress key_;
  std::vector<std::string> shown_;  // empty: nothing is known of the screen
};

}  // namespace nanwatch
