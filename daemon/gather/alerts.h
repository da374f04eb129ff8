// SPDX-License-Identifier: Apache-2.0
// Tells Prometheus' Alertmanager of the first anomaly of each launch, and of its end: one alert a
// launch, firing until no run of it goes on, and for some minutes at least: Alertmanager says
// nothing of what ends while it still gathers a group (group_wait), and a NaN often ends a job. The alert is repeated every minute, as Prometheus does,
// because Alertmanager forgets what it is not told again; it notifies once. A later answer, as that
// another rank began it, changes the words of the same alert.
//
// One thread. The clock and the way to Alertmanager are given, for tests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "daemon/base/clock.h"
#include "daemon/base/status.h"
#include "daemon/gather/alert_book.h"
#include "daemon/gather/fleet_reader.h"
#include "daemon/http/http_client.h"

namespace nanwatch {

inline constexpr uint64_t kAlertLookNs = 2'000'000'000;      // for anomalies
inline constexpr uint64_t kAlertEndLookNs = 10'000'000'000;  // for ends
inline constexpr uint64_t kAlertLeastNs = 300'000'000'000;
inline constexpr uint64_t kAlertRepeatNs = 60'000'000'000;
inline constexpr uint64_t kAlertHoldsNs = 300'000'000'000;  // without being repeated
inline constexpr int64_t kAlertFirstLookSeconds = 86'400;
inline constexpr int64_t kAlertAgainSeconds = 300;  // rows of transactions that took long are seen

class Alerts {
 public:
  // Sends the body of a POST to /api/v2/alerts.
  using Send = std::function<Result<HttpReply>(const std::string& body)>;
  using Report = std::function<void(const std::string& sentence)>;

  struct Options {
    std::string pages = {};  // where `nanwatch serve --fleet` is reached, for links; "": none
    uint64_t least_ns = kAlertLeastNs;  // that an alert fires
  };

  Alerts(AlertBook& book, FleetReader& reader, Send send, const Clock& clock, Options options,
         Report report)
      : book_(book),
        reader_(reader),
        send_(std::move(send)),
        clock_(clock),
        options_(std::move(options)),
        report_(std::move(report)) {}

  // Looks, and sends what is due. To be called every kAlertLookNs.
  void Step();

 private:
  [[nodiscard]] Status BeginNew();
  [[nodiscard]] Status Judge(const AlarmingJob& job);
  [[nodiscard]] Status EndOld();
  [[nodiscard]] Status Tell();
  void Note(Status& known, const Status& now, const std::string& well_again);

  AlertBook& book_;
  FleetReader& reader_;
  Send send_;
  const Clock& clock_;
  Options options_;
  Report report_;

  std::map<std::pair<std::string, std::string>, int64_t> judged_;  // incidents, by tenant and job
  std::map<std::string, uint64_t> firing_since_ns_;                // as told by this process
  bool has_looked_ = false;
  bool is_due_ = true;  // something is other than what was told
  uint64_t told_ns_ = 0;
  uint64_t ends_looked_ns_ = 0;
  Status database_, manager_;
};

}  // namespace nanwatch
