// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/status.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>

namespace nanwatch {
namespace {

TEST(StatusTest, EachBoundaryAddsWhatItWasDoing) {
  const Status failure =
      Status(ErrorKind::kIo, "disk gone").WithContext("reading a").WithContext("showing b");
  EXPECT_EQ(failure.message(), "showing b: reading a: disk gone");
  EXPECT_EQ(failure.kind(), ErrorKind::kIo);
}

TEST(StatusTest, SuccessStaysSuccessWhateverTheContext) {
  EXPECT_TRUE(Status().WithContext("reading").ok());
}

TEST(StatusTest, AFullDiskIsToldFromOtherErrors) {
  EXPECT_EQ(Status::FromErrno(ENOSPC, "write").kind(), ErrorKind::kFull);
  EXPECT_EQ(Status::FromErrno(ENOENT, "open").kind(), ErrorKind::kNotFound);
  EXPECT_EQ(Status::FromErrno(EACCES, "open").kind(), ErrorKind::kPermission);
  EXPECT_EQ(Status::FromErrno(EIO, "read").message(), "read: Input/output error");
}

TEST(ResultTest, HoldsAValueThatCanOnlyBeMoved) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  ASSERT_TRUE(result.ok());
  const std::unique_ptr<int> value = *std::move(result);
  EXPECT_EQ(*value, 7);
}

}  // namespace
}  // namespace nanwatch
