# SPDX-License-Identifier: Apache-2.0
# Instructions that FUNCTION takes for each of the TIMES that it does WHAT, its loop included. Fails above LIMIT.
# Run with -DVALGRIND=... -DPROGRAM=... -DFUNCTION=... -DTIMES=... -DWHAT=... -DLIMIT=...
set(output ${CMAKE_CURRENT_BINARY_DIR}/${FUNCTION}.callgrind)
execute_process(
  COMMAND ${VALGRIND} --tool=callgrind --callgrind-out-file=${output} --toggle-collect=${FUNCTION} ${PROGRAM}
  OUTPUT_VARIABLE said ERROR_VARIABLE log COMMAND_ERROR_IS_FATAL ANY)
if(NOT log MATCHES "Collected : ([0-9]+)")
  message(FATAL_ERROR "callgrind counted nothing:\n${log}")
endif()
math(EXPR instructions "${CMAKE_MATCH_1} / ${TIMES}")
string(STRIP "${said}" said)
message(STATUS "${instructions} instructions for ${WHAT} (${said})")
if(instructions LESS 5)
  message(FATAL_ERROR "That cannot be: the calls were optimised away or not counted.")
endif()
if(instructions GREATER LIMIT)
  message(FATAL_ERROR "More than ${LIMIT}.")
endif()
