// SPDX-License-Identifier: Apache-2.0
#include "shim/device/driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/fakes/cuda/fake_cuda.h"

namespace nanwatch::device {
namespace {

// A driver library without some functions, which remembers what it was asked for.
struct Library {
  std::set<std::string> without;
  std::set<std::string> asked;

  Driver LookUp() {
    return LookUpDriver(
        [](void* context, const char* name) -> void* {
          auto* library = static_cast<Library*>(context);
          library->asked.insert(name);
          return library->without.contains(name) ? nullptr : dlsym(RTLD_DEFAULT, name);
        },
        this);
  }
};

TEST(DriverOfProcess, IsTheLibraryThatTheProcessHasLoaded) {
  fake_cuda_reset(1);
  const std::optional<Driver> driver = DriverOfProcess();
  ASSERT_TRUE(driver.has_value());
  EXPECT_EQ(driver->absent_required, nullptr);
  EXPECT_EQ(driver->absent_optional, nullptr);
  int version = 0;
  EXPECT_EQ(driver->driver_get_version(&version), kCuSuccess);
  EXPECT_EQ(version, 12000);
}

TEST(LookUpDriver, NamesAFunctionWithoutWhichNothingCanBeChecked) {
  Library library = {{"cuLaunchKernel"}, {}};
  const Driver driver = library.LookUp();
  EXPECT_STREQ(driver.absent_required, "cuLaunchKernel");
  EXPECT_EQ(driver.launch_kernel, nullptr);
  EXPECT_NE(driver.mem_alloc, nullptr);
}

TEST(LookUpDriver, DoesWithoutWhatOldDriversLack) {
  Library library = {{"cuStreamGetId"}, {}};
  const Driver driver = library.LookUp();
  EXPECT_EQ(driver.absent_required, nullptr);
  EXPECT_STREQ(driver.absent_optional, "cuStreamGetId");
}

TEST(LookUpDriver, MissesNoFormThatStandsInForAnotherOne) {
  Library library = {{"cuStreamGetCaptureInfo_v3"}, {}};
  EXPECT_EQ(library.LookUp().absent_optional, nullptr);
  library.without = {"cuStreamGetCaptureInfo_v2"};
  const Driver driver = library.LookUp();
  EXPECT_STREQ(driver.absent_optional, "cuStreamGetCaptureInfo_v2");
  EXPECT_NE(driver.stream_get_capture_info_v3, nullptr);
}

// What is not looked up cannot be called, whatever else the code does.
TEST(LookUpDriver, AsksForNothingThatWaitsCopiesFreesOrTakesAnError) {
  Library library;
  (void)library.LookUp();
  EXPECT_EQ(library.asked.size(), 24u);
  for (const std::string& name : library.asked) {
    for (const char* forbidden : {"Synchronize", "Query", "Wait", "Memcpy", "Free", "Destroy",
                                  "Unload", "Unregister", "GetLastError", "SetCurrent", "cuda"}) {
      EXPECT_EQ(name.find(forbidden), std::string::npos) << name;
    }
  }
}

TEST(MeansContextLost, IsTrueOfWhatNoLaterCallRecoversFrom) {
  for (const CuResult result : {kCuDeinitialized, kCuEccUncorrectable, kCuIllegalAddress,
                                kCuContextIsDestroyed, kCuAssert, kCuInvalidPc, kCuLaunchFailed,
                                kCuContained, kCuTensorMemoryLeak, kCuExternalDevice, kCuUnknown}) {
    EXPECT_TRUE(MeansContextLost(result)) << result;
  }
  for (const CuResult result :
       {kCuSuccess, kCuOutOfMemory, kCuInvalidHandle, kCuHostMemoryAlreadyRegistered,
        kCuNotPermitted, kCuStreamCaptureUnsupported}) {
    EXPECT_FALSE(MeansContextLost(result)) << result;
  }
}

}  // namespace
}  // namespace nanwatch::device
