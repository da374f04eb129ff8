// SPDX-License-Identifier: Apache-2.0
#include "tools/screen.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <optional>

#include "tools/terminal.h"

namespace nanwatch {
namespace {

// The alternate screen; then no wrapping at its right edge, no cursor, nothing on it; and all of it
// back. The first must not be sent twice: it would forget where the cursor was.
constexpr std::string_view kEnter = "\x1b[?1049h";
constexpr std::string_view kClear = "\x1b[?7l\x1b[?25l\x1b[2J";
constexpr std::string_view kGiveBack = "\x1b[0m\x1b[?25h\x1b[?7h\x1b[?1049l";

// Static, because a signal handler can be given nothing.
struct termios settings_found;
volatile sig_atomic_t is_taken = 0;
std::terminate_handler terminate_found = nullptr;

// Waited for in between; the others end the process, at any moment.
constexpr std::array<int, 3> kWaitedFor = {SIGWINCH, SIGTSTP, SIGCONT};
constexpr std::array<int, 15> kFatal = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM, SIGABRT,
                                        SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,  SIGPIPE,
                                        SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU, SIGSYS};
std::array<struct sigaction, kFatal.size()> found_for;

// Only what is allowed in a signal handler. The settings go first: a terminal that takes no output
// must not keep them from it.
void GiveBack() noexcept {
  if (is_taken == 0) return;
  is_taken = 0;
  const int saved_errno = errno;
  tcsetattr(STDIN_FILENO, TCSANOW, &settings_found);
  (void)!write(STDOUT_FILENO, kGiveBack.data(), kGiveBack.size());
  errno = saved_errno;
}

// The old handlers are restored first: a sanitizer has its own, which must run.
void GiveBackAndDie(int signal_number) noexcept {
  GiveBack();
  for (size_t i = 0; i < kFatal.size(); ++i) {
    if (kFatal[i] == signal_number) sigaction(signal_number, &found_for[i], nullptr);
  }
  raise(signal_number);  // blocked until we return, then the kernel's to act on
}

[[noreturn]] void GiveBackAndTerminate() {
  GiveBack();  // first, so that what the other handler says is seen
  if (terminate_found != nullptr) terminate_found();
  std::abort();
}

bool IsOurs(const struct sigaction& action) { return action.sa_handler == GiveBackAndDie; }

// What whoever started us ignores (nohup) stays ignored. SIGBUS may be a mapping's to mend
// (daemon/ingest/guarded_mapping.h), which is no end.
void InstallHandlers() {
  struct sigaction action {};
  action.sa_handler = GiveBackAndDie;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kFatal.size(); ++i) {
    struct sigaction& found = found_for[i];
    if (sigaction(kFatal[i], nullptr, &found) != 0 || found.sa_handler == SIG_IGN) continue;
    if (kFatal[i] == SIGBUS && found.sa_handler != SIG_DFL) continue;
    sigaction(kFatal[i], &action, nullptr);
  }
  terminate_found = std::set_terminate(GiveBackAndTerminate);
}

void RemoveHandlers() {
  for (size_t i = 0; i < kFatal.size(); ++i) {
    struct sigaction now {};
    if (sigaction(kFatal[i], nullptr, &now) == 0 && IsOurs(now)) {
      sigaction(kFatal[i], &found_for[i], nullptr);
    }
  }
  std::set_terminate(terminate_found);
}

sigset_t SetOf(const std::array<int, 3>& numbers) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : numbers) sigaddset(&set, number);
  return set;
}

// Keys at once and unseen. Ctrl-S must not be able to stop us in the middle of a write.
void SetKeysRaw() {
  struct termios raw = settings_found;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_iflag &= ~static_cast<tcflag_t>(IXON);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  // From the background this stops us until we are in the foreground.
  while (tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) != 0 && errno == EINTR) {
  }
}

// Put into the background after a stop, we wait to be called back: the settings to be found are
// those that the shell sets for us then, not those it types with. A process whose shell is gone is
// not stopped by this signal, hence no loop without end.
void AwaitForeground() {
  for (int tries = 0; tries < 3 && tcgetpgrp(STDIN_FILENO) != getpgrp(); ++tries) raise(SIGTTIN);
}

void Take() {
  AwaitForeground();
  tcgetattr(STDIN_FILENO, &settings_found);
  is_taken = 1;
  SetKeysRaw();
  WriteAll(STDOUT_FILENO, kEnter);
  WriteAll(STDOUT_FILENO, kClear);
}

size_t NumberOr(const char* text, size_t otherwise) {
  const long number = text == nullptr ? 0 : strtol(text, nullptr, 10);
  return number > 0 && number < 10'000 ? static_cast<size_t>(number) : otherwise;
}

// What the sequence after ESC [ or ESC O means: its parameter and its last byte.
std::optional<Key> KeyOf(std::string_view parameter, char last) {
  switch (last) {
    case 'A':
      return Key::kUp;
    case 'B':
      return Key::kDown;
    case 'H':
      return Key::kHome;
    case 'F':
      return Key::kEnd;
    case '~':
      if (parameter == "5") return Key::kPageUp;
      if (parameter == "6") return Key::kPageDown;
      if (parameter == "1" || parameter == "7") return Key::kHome;
      if (parameter == "4" || parameter == "8") return Key::kEnd;
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::vector<KeyPress> KeyDecoder::Feed(std::string_view bytes) {
  constexpr size_t kSequenceMax = 32;
  std::vector<KeyPress> keys;
  for (const char byte : bytes) {
    if (pending_.empty()) {
      if (byte == '\x1b') {
        pending_ = byte;
      } else {
        keys.push_back({.character = byte});
      }
      continue;
    }
    if (pending_.size() == 1) {
      // A lone Escape was pressed before this key.
      const bool begins_sequence = byte == '[' || byte == 'O';
      if (begins_sequence) {
        pending_ += byte;
      } else {
        pending_.clear();
        if (byte == '\x1b')
          pending_ = byte;
        else
          keys.push_back({.character = byte});
      }
      continue;
    }
    const bool is_last = byte >= '@' && byte <= '~';
    if (!is_last && pending_.size() < kSequenceMax) {
      pending_ += byte;
      continue;
    }
    if (const std::optional<Key> key = KeyOf(std::string_view(pending_).substr(2), byte)) {
      keys.push_back({.key = *key});
    }
    pending_.clear();
  }
  return keys;
}

ScreenSize SizeOfTerminal(int fd) {
  struct winsize size {};
  if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) {
    return {.lines = size.ws_row, .columns = size.ws_col};
  }
  return {.lines = NumberOr(getenv("LINES"), 24), .columns = NumberOr(getenv("COLUMNS"), 80)};
}

bool Screen::IsPossible() {
  const char* kind = getenv("TERM");
  return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && kind != nullptr &&
         *kind != '\0' && std::string_view(kind) != "dumb";
}

Screen::Screen() {
  const sigset_t waited_for = SetOf(kWaitedFor);
  sigprocmask(SIG_BLOCK, &waited_for, nullptr);
  signals_ = signalfd(-1, &waited_for, SFD_CLOEXEC | SFD_NONBLOCK);
  InstallHandlers();
  Take();
}

Screen::~Screen() {
  GiveBack();
  RemoveHandlers();
  if (signals_ >= 0) close(signals_);
  const sigset_t waited_for = SetOf(kWaitedFor);
  sigprocmask(SIG_UNBLOCK, &waited_for, nullptr);
}

ScreenSize Screen::size() const { return SizeOfTerminal(STDOUT_FILENO); }

bool Screen::Show(const std::vector<std::string>& lines) {
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i < shown_.size() && shown_[i] == lines[i]) continue;
    // Cleared first: after a full line the cursor is on its last cell.
    text += "\x1b[" + std::to_string(i + 1) + ";1H\x1b[K" + lines[i];
  }
  if (lines.size() < shown_.size())
    text += "\x1b[" + std::to_string(lines.size() + 1) + ";1H\x1b[J";
  shown_ = lines;
  return WriteAll(STDOUT_FILENO, text);
}

void Screen::StopAsAsked() {
  GiveBack();
  const sigset_t stop = SetOf({SIGTSTP, SIGTSTP, SIGTSTP});
  raise(SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, nullptr);  // here the time passes
  sigprocmask(SIG_BLOCK, &stop, nullptr);
  Take();
}

Screen::Event Screen::TakeSignal() {
  struct signalfd_siginfo info {};
  while (read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    if (info.ssi_signo == SIGTSTP) {
      StopAsAsked();
    } else if (info.ssi_signo == SIGCONT) {
      // After a stop that we could not see (SIGSTOP) the shell has changed the terminal's settings.
      SetKeysRaw();
    }
  }
  WriteAll(STDOUT_FILENO, kClear);
  shown_.clear();
  return Event::kRedraw;
}

Screen::Event Screen::Wait(std::chrono::milliseconds timeout) {
  if (keys_.empty()) {
    std::array<pollfd, 2> watched = {{{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
                                      {.fd = signals_, .events = POLLIN, .revents = 0}}};
    const int ready = poll(watched.data(), watched.size(), static_cast<int>(timeout.count()));
    if (ready < 0) return errno == EINTR ? Event::kTime : Event::kGone;
    if (watched[1].revents != 0) return TakeSignal();
    if (watched[0].revents == 0) return Event::kTime;
    std::array<char, 256> bytes;
    const ssize_t count = read(STDIN_FILENO, bytes.data(), bytes.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return Event::kTime;
    if (count <= 0) return Event::kGone;
    for (const KeyPress& key : decoder_.Feed({bytes.data(), static_cast<size_t>(count)})) {
      keys_.push_back(key);
    }
    if (keys_.empty()) return Event::kTime;
  }
  key_ = keys_.front();
  keys_.pop_front();
  return Event::kKey;
}

}  // namespace nanwatch
