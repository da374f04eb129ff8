// SPDX-License-Identifier: Apache-2.0
#include "daemon/http/gzip.h"

#include <zlib.h>

namespace nanwatch {

std::string Gzip(std::string_view text) {
  constexpr int kLevel = 1;  // records repeat themselves: more costs time and saves little
  constexpr int kGzipWindow = 15 + 16;
  z_stream stream = {};
  if (deflateInit2(&stream, kLevel, Z_DEFLATED, kGzipWindow, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    return "";
  std::string packed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  const int done = deflate(&stream, Z_FINISH);
  packed.resize(done == Z_STREAM_END ? stream.total_out : 0);
  deflateEnd(&stream);
  return packed;
}

}  // namespace nanwatch
