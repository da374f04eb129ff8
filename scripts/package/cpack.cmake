# SPDX-License-Identifier: Apache-2.0
# The Debian package, of a tree that package.sh has put together.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME nanwatch)
set(CPACK_PACKAGE_FILE_NAME nanwatch)
set(CPACK_PACKAGE_VENDOR nanwatch)
set(CPACK_PACKAGE_CONTACT "nanwatch developers <nanwatch@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "find the op that made a PyTorch job's first NaN")
set(CPACK_PACKAGE_DESCRIPTION "Watches an unmodified PyTorch job and names the op, layer, step and rank that
first produced a NaN or Inf that mattered, why, and what to do. A library is
preloaded into the job, and a daemon keeps what it finds.")
set(CPACK_PACKAGING_INSTALL_PREFIX /)
set(CPACK_SET_DESTDIR OFF)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
# The programs carry their libraries; the libraries are loaded where a torch is.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.28)")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "cmake, g++, libboost-dev, ninja-build")
