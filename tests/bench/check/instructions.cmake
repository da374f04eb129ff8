# SPDX-License-Identifier: Apache-2.0
# Instructions of one check of 16 floats, the call and the caller's loop included. Fails above the limit.
# Run with -DVALGRIND=..., -DPROGRAM=..., -DLIMIT=...
set(output ${CMAKE_CURRENT_BINARY_DIR}/one_check.callgrind)
execute_process(
  COMMAND ${VALGRIND} --tool=callgrind --callgrind-out-file=${output} --toggle-collect=CheckMany ${PROGRAM}
  OUTPUT_VARIABLE level ERROR_VARIABLE log COMMAND_ERROR_IS_FATAL ANY)
if(NOT log MATCHES "Collected : ([0-9]+)")
  message(FATAL_ERROR "callgrind counted nothing:\n${log}")
endif()
math(EXPR instructions "${CMAKE_MATCH_1} / 10000")
string(STRIP "${level}" level)
message(STATUS "${instructions} instructions for one check of 16 floats (${level})")
if(instructions LESS 5)
  message(FATAL_ERROR "That cannot be: the checks were optimised away or not counted.")
endif()
if(instructions GREATER LIMIT)
  message(FATAL_ERROR "More than ${LIMIT}.")
endif()
