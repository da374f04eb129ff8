// SPDX-License-Identifier: Apache-2.0
// Sends a daemon's outbox (daemon/store/outbox.h) to a gatherer, until all of it is acknowledged.
//
// What is urgent goes at once: conclusions and findings. States and steps wait up to a second for
// others. A request that fails is repeated later, after a pause that doubles up to a minute, with
// jitter, so that hosts that lost the same gatherer do not come back together.
//
// Rows count as sent only on the word of a nanwatch-gather, which names itself in a header of each
// answer: they are committed, or it refuses them for good. A row that it refuses so is found by
// halving, counted for its run (outbox_sent.h) and passed over: it would hold up all others.
// Whatever else answers, as another web server at a wrong address or a proxy on the way, changes
// nothing but when the next try is. A Collector's acknowledgement counts where the user says that
// there is one.
//
// A gatherer's database may lack later what was acknowledged: it was restored from a backup, a
// replica took over, or --to names another one. So each request asks whether the newest row that
// was acknowledged is still there, and every five minutes there is a request for that alone. If it
// is not, earlier ones are asked for, and all that was sent after the newest that is there is sent
// again, as far as the outbox still has it (outbox_options.h). A row that was acknowledged more
// than a day ago is not asked for: a fleet lets go of what is old. A Collector cannot answer that.
//
// One thread. The clock and the way to the gatherer are given, for tests.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "daemon/base/clock.h"
#include "daemon/base/status.h"
#include "daemon/http/http_client.h"
#include "daemon/store/outbox_reader.h"

namespace nanwatch {

inline constexpr uint64_t kForwardLookNs = 200'000'000;      // how often the outbox is looked at
inline constexpr uint64_t kForwardGatherNs = 1'000'000'000;  // that rows wait which are not urgent
inline constexpr uint64_t kForwardPauseNs = 500'000'000;     // after the first failure, about
inline constexpr uint64_t kForwardPauseMaxNs = 60'000'000'000;
inline constexpr uint64_t kForwardAskNs = 300'000'000'000;  // between questions while nothing waits
inline constexpr uint64_t kForwardAgainNs = 5'000'000'000;  // between two times that it goes back
inline constexpr size_t kForwardRowsMax = 2'000;
inline constexpr size_t kForwardBytesMax = size_t{4} << 20;

class Forwarder {
 public:
  struct Options {
    std::string state_dir;
    std::string host;             // our name, sent along
    bool to_a_collector = false;  // what answers may be an OpenTelemetry Collector
    uint64_t seed = 0;            // of the jitter
  };
  // Sends a request that EncodeLogs made, with further headers.
  using Send =
      std::function<Result<HttpReply>(const std::string& request, const HttpHeaders& headers)>;
  using Report = std::function<void(const std::string& sentence)>;

  Forwarder(Options options, Send send, const Clock& clock, Report report);

  // One look and at most one request with rows; some more where a row is missing. Gives how long
  // nothing is to be done, in nanoseconds.
  [[nodiscard]] uint64_t Step();

  // Of the last Step: nothing waited, or all that waited was sent.
  [[nodiscard]] bool is_done() const { return is_done_; }
  // Why the last request was not acknowledged; ok when it was, or there was none.
  [[nodiscard]] const Status& trouble() const { return trouble_; }
  [[nodiscard]] uint64_t acknowledged() const { return acknowledged_; }  // rows
  [[nodiscard]] uint64_t rejected() const { return rejected_; }          // for good
  // For Prometheus, as text: what waits and since when, what was sent, what failed. Of this process.
  [[nodiscard]] std::string Metrics();

 private:
  [[nodiscard]] Status Explained(const Status& why) const;
  Status OpenOutbox();
  uint64_t NothingWaits();
  [[nodiscard]] Result<HttpReply> Request(const std::vector<FleetRow>& rows);
  [[nodiscard]] Result<bool> IsNewestThere();
  void AskNowAndThen();
  [[nodiscard]] bool IsToGoBack() const;
  [[nodiscard]] Status GoBack();
  uint64_t SendRows(const std::vector<FleetRow>& rows);
  uint64_t Acknowledge(const std::vector<FleetRow>& rows, const HttpReply& reply);
  uint64_t Refused(const std::vector<FleetRow>& rows, const HttpReply& reply);
  uint64_t NotAnswered(const std::vector<FleetRow>& rows, const HttpReply& reply);
  uint64_t TryLater(const Status& why, uint64_t at_least_ns);
  [[nodiscard]] uint64_t PauseAfter(uint32_t failures);
  void PassOver(const std::vector<FleetRow>& rows);
  void MarkNewest(const std::vector<FleetRow>& rows);
  void WriteSentFile();
  void ReportLoss();
  void CountRejected(const std::vector<FleetRow>& rows, const std::string& why);
  [[nodiscard]] bool IsDue(const std::vector<FleetRow>& rows) const;

  Options options_;
  Send send_;
  const Clock& clock_;
  Report report_;
  std::mt19937_64 random_;

  std::optional<OutboxReader> outbox_;
  uint64_t outbox_inode_ = 0;
  SentUpTo sent_;
  RefusedRows refused_;
  SentMarks marks_;
  uint64_t ask_at_ns_ = 0;          // whether the newest of them is there
  uint32_t questions_failed_ = 0;   // in a row
  bool is_newest_missing_ = false;  // and what came before it may be, too
  std::optional<uint64_t> went_back_at_ns_;
  bool sent_is_written_ = true;
  Status kept_;                         // kNotFound: the daemon writes no more of it
  std::optional<int64_t> seen_change_;  // nothing waited when the database was at this count
  size_t rows_max_ = kForwardRowsMax;
  uint64_t sent_at_ns_ = 0;
  uint32_t failures_ = 0;  // in a row
  Status trouble_;
  uint64_t reported_loss_ = 0;
  bool is_done_ = false;
  uint64_t acknowledged_ = 0;
  uint64_t rejected_ = 0;
  uint64_t requests_failed_ = 0;
  uint64_t times_back_ = 0;
  uint64_t taken_at_real_ns_ = 0;  // when rows were taken last
};

}  // namespace nanwatch
