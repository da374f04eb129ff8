// SPDX-License-Identifier: Apache-2.0
#include "daemon/ingest/guarded_mapping.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "daemon/base/unique_fd.h"
#include "tests/fakes/temporary_directory.h"

namespace nanwatch {
namespace {

constexpr size_t kBytes = 64 * 1024;

class GuardedMappingTest : public testing::Test {
 protected:
  GuardedMappingTest()
      : fd_(open((directory_ / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    EXPECT_EQ(ftruncate(fd_.get(), kBytes), 0);
    EXPECT_EQ(pwrite(fd_.get(), "x", 1, kBytes - 1), 1);
  }

  TemporaryDirectory directory_;
  UniqueFd fd_;
};

TEST_F(GuardedMappingTest, ShowsWhatIsInTheFile) {
  const Result<GuardedMapping> mapping = GuardedMapping::Map(fd_.get(), kBytes, /*writable=*/false);
  ASSERT_TRUE(mapping.ok());
  EXPECT_EQ(mapping->data()[kBytes - 1], 'x');
}

TEST_F(GuardedMappingTest, ReadsZerosWhereTheFileWasCutOff) {
  const Result<GuardedMapping> mapping = GuardedMapping::Map(fd_.get(), kBytes, /*writable=*/false);
  ASSERT_TRUE(mapping.ok());
  ASSERT_EQ(ftruncate(fd_.get(), 0), 0);
  const volatile unsigned char* data = mapping->data();
  EXPECT_EQ(data[kBytes - 1], 0);
  EXPECT_EQ(data[0], 0);
}

TEST_F(GuardedMappingTest, AWriteWhereTheFileWasCutOffDoesNoHarm) {
  const Result<GuardedMapping> mapping = GuardedMapping::Map(fd_.get(), kBytes, /*writable=*/true);
  ASSERT_TRUE(mapping.ok());
  ASSERT_EQ(ftruncate(fd_.get(), 0), 0);
  volatile unsigned char* data = mapping->data();
  data[kBytes / 2] = 7;
  EXPECT_EQ(data[kBytes / 2], 7);
}

TEST_F(GuardedMappingTest, TakesAFewMappingsHoweverManyPagesAreMissing) {
  constexpr size_t kPages = 20'000;
  const std::string path = directory_ / "large";
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(ftruncate(fd.get(), kPages * 4096), 0);
  const Result<GuardedMapping> mapping = GuardedMapping::Map(fd.get(), kPages * 4096, false);
  ASSERT_TRUE(mapping.ok());
  ASSERT_EQ(ftruncate(fd.get(), 0), 0);
  const auto count_maps = [] {
    std::ifstream maps("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n');
  };
  const auto before = count_maps();
  // Every other page, so that they do not merge.
  unsigned sum = 0;
  for (size_t page = 0; page < kPages; page += 2) {
    sum += *static_cast<volatile unsigned char*>(mapping->data() + page * 4096);
  }
  EXPECT_EQ(sum, 0u);
  EXPECT_LT(count_maps() - before, 200);
}

TEST_F(GuardedMappingTest, FaultsElsewhereStillEndTheProcess) {
  const Result<GuardedMapping> mapping = GuardedMapping::Map(fd_.get(), kBytes, /*writable=*/false);
  ASSERT_TRUE(mapping.ok());
  auto* other = static_cast<volatile unsigned char*>(
      mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd_.get(), 0));
  ASSERT_EQ(ftruncate(fd_.get(), 0), 0);
  EXPECT_DEATH((void)other[0], "");
}

TEST_F(GuardedMappingTest, RefusesMoreThanItCanGuard) {
  std::vector<GuardedMapping> mappings;
  for (size_t i = 0; i < kMappingsMax; ++i) {
    Result<GuardedMapping> mapping = GuardedMapping::Map(fd_.get(), kBytes, /*writable=*/false);
    ASSERT_TRUE(mapping.ok());
    mappings.push_back(*std::move(mapping));
  }
  EXPECT_EQ(GuardedMapping::Map(fd_.get(), kBytes, false).status().kind(), ErrorKind::kBusy);
  mappings.pop_back();
  EXPECT_TRUE(GuardedMapping::Map(fd_.get(), kBytes, false).ok());
}

}  // namespace
}  // namespace nanwatch
