# SPDX-License-Identifier: Apache-2.0
# add_artifact_test(NAME QUESTION TARGET [ARGUMENTS...]): inspect_library.py on a built library.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
set(NANWATCH_ARTIFACT_DIR ${CMAKE_CURRENT_LIST_DIR})
function(add_artifact_test name question target)
  add_test(NAME ${name} COMMAND Python3::Interpreter ${NANWATCH_ARTIFACT_DIR}/inspect_library.py
    ${question} $<TARGET_FILE:${target}> ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS artifact TIMEOUT 60)
endfunction()
