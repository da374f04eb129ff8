# SPDX-License-Identifier: Apache-2.0
# The LibTorch that the observer is compiled against: that of NANWATCH_PYTHON (default: .venv).
# Sets NANWATCH_TORCH_DIR, NANWATCH_TORCH_VERSION (2.11.0), NANWATCH_TORCH_MINOR (2.11) and the target
# nanwatch_torch, through which headers and libraries arrive.
set(NANWATCH_PYTHON "$ENV{NANWATCH_PYTHON}" CACHE FILEPATH "Python whose torch the observer is built for")
if(NOT NANWATCH_PYTHON)
  set(NANWATCH_PYTHON ${CMAKE_SOURCE_DIR}/.venv/bin/python CACHE FILEPATH "" FORCE)
endif()

execute_process(
  COMMAND ${NANWATCH_PYTHON} ${CMAKE_SOURCE_DIR}/scripts/cmake/torch_probe.py
  OUTPUT_VARIABLE probe OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_VARIABLE probe_error RESULT_VARIABLE probe_status)
if(NOT probe_status EQUAL 0)
  message(FATAL_ERROR "No torch found with '${NANWATCH_PYTHON}': run scripts/setup.sh, or set "
    "NANWATCH_PYTHON=/path/to/python whose torch is to be used.\n${probe_error}")
endif()
list(GET probe 0 NANWATCH_TORCH_DIR)
list(GET probe 1 NANWATCH_TORCH_VERSION)
list(GET probe 2 torch_new_string_abi)
string(REGEX MATCH "^[0-9]+\\.[0-9]+" NANWATCH_TORCH_MINOR ${NANWATCH_TORCH_VERSION})
message(STATUS "nanwatch: observer for torch ${NANWATCH_TORCH_VERSION} in ${NANWATCH_TORCH_DIR}")

add_library(nanwatch_torch INTERFACE)
target_include_directories(nanwatch_torch SYSTEM INTERFACE ${NANWATCH_TORCH_DIR}/include
  ${NANWATCH_TORCH_DIR}/include/torch/csrc/api/include)
# NDEBUG: without it the headers' debug assertions fire against a release libtorch.
target_compile_definitions(nanwatch_torch INTERFACE NDEBUG _GLIBCXX_USE_CXX11_ABI=${torch_new_string_abi})
target_link_libraries(nanwatch_torch INTERFACE ${NANWATCH_TORCH_DIR}/lib/libtorch_cpu.so
  ${NANWATCH_TORCH_DIR}/lib/libc10.so)
