// SPDX-License-Identifier: Apache-2.0
// What `nanwatch serve --fleet` answers: the pages of `nanwatch serve`, of a gatherer's documents.
//
//   /  /runs/ID  /api/v1/runs  /api/v1/runs/ID/verdict  /api/v1/runs/ID/page  /healthz
//
// ID is that of a run or a job, or its beginning, or JOB@LAUNCH. Each question goes to the gatherer,
// which keeps answers for a moment. Any thread.
#pragma once

#include <string>
#include <utility>

#include "daemon/http/http_client.h"
#include "daemon/http/http_server.h"

namespace nanwatch {

class FleetPages {
 public:
  explicit FleetPages(HttpClientOptions fleet) : fleet_(std::move(fleet)) {}

  [[nodiscard]] HttpAnswer Answer(const HttpRequest& request) const;

 private:
  [[nodiscard]] HttpAnswer RunList() const;
  [[nodiscard]] HttpAnswer OfRun(const std::string& name, const std::string& what) const;
  [[nodiscard]] Result<std::string> JobOf(const std::string& name) const;

  HttpClientOptions fleet_;
};

}  // namespace nanwatch
