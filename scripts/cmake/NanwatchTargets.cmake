# SPDX-License-Identifier: Apache-2.0
# Helpers, one per kind of target, and the flags that all own code is compiled with.
include(GNUInstallDirs)

set(CMAKE_C_STANDARD 11)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# The build tree has the layout of an installation, so that it works in place.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(NANWATCH_LIB_DIR ${CMAKE_BINARY_DIR}/lib)
set(NANWATCH_OBSERVER_DIR ${CMAKE_BINARY_DIR}/lib/nanwatch)

# Line tables are enough for a backtrace. Full debug information of torch's headers takes a third of the compiler's time; the
# preset `dev` has it.
add_compile_options($<$<CONFIG:RelWithDebInfo>:-g1>)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without these, ccache passes each file with a precompiled header on to the compiler.
  string(REPLACE "," ";" sloppiness "$ENV{CCACHE_SLOPPINESS}")
  list(APPEND sloppiness pch_defines time_macros)
  list(REMOVE_DUPLICATES sloppiness)
  list(JOIN sloppiness "," sloppiness)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER /usr/bin/env CCACHE_SLOPPINESS=${sloppiness} ${CCACHE_PROGRAM})
endif()

# Warnings are errors for own code.
add_library(nanwatch_flags INTERFACE)
target_compile_options(nanwatch_flags INTERFACE -Wall -Wextra -Wshadow -Werror)
target_include_directories(nanwatch_flags INTERFACE ${CMAKE_SOURCE_DIR})
if(CMAKE_UNITY_BUILD)
  # Every file of a batch is an included one there, and GCC takes its local types for a header's.
  target_compile_options(nanwatch_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()

# The same for code that is not loaded into the job: sanitizers apply there only, because a sanitizer's
# runtime must be the first library of a process.
add_library(nanwatch_user_side INTERFACE)
target_link_libraries(nanwatch_user_side INTERFACE nanwatch_flags)
if(NANWATCH_SANITIZE STREQUAL "address")
  target_compile_options(nanwatch_user_side INTERFACE -fsanitize=address,undefined
    -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(nanwatch_user_side INTERFACE -fsanitize=address,undefined)
elseif(NANWATCH_SANITIZE STREQUAL "thread")
  target_compile_options(nanwatch_user_side INTERFACE -fsanitize=thread -fno-omit-frame-pointer)
  target_link_options(nanwatch_user_side INTERFACE -fsanitize=thread)
elseif(NANWATCH_SANITIZE STREQUAL "fuzzer")
  # By clang; what our flags say of gcc's warnings is not for it.
  target_compile_options(nanwatch_user_side INTERFACE -fsanitize=fuzzer-no-link,address,undefined
    -fno-omit-frame-pointer -fno-sanitize-recover=all -Wno-error -Wno-unknown-warning-option)
  target_link_options(nanwatch_user_side INTERFACE -fsanitize=address,undefined)
elseif(NANWATCH_SANITIZE)
  message(FATAL_ERROR "NANWATCH_SANITIZE is '${NANWATCH_SANITIZE}': use address, thread, fuzzer, or leave it empty")
endif()

# Code that is loaded into the job. With NANWATCH_SANITIZE_OBSERVER its unit tests, which are programs, are sanitized as a whole;
# such a build's libraries go into no job (scripts/sanitize.sh).
add_library(nanwatch_job_side INTERFACE)
if(NANWATCH_SANITIZE_OBSERVER)
  target_link_libraries(nanwatch_job_side INTERFACE nanwatch_user_side)
else()
  target_link_libraries(nanwatch_job_side INTERFACE nanwatch_flags)
endif()

# What goes into an observer asks for old names of glibc. Not a public flag: tests that link to it are of this machine.
function(load_on_old_hosts target)
  target_compile_options(${target} PRIVATE -include ${CMAKE_SOURCE_DIR}/shim/host/old_glibc.h)
endfunction()

# install_stripped(TARGET DESTINATION [COMPONENT]): installs the file without symbols and debug information, which are two thirds of it.
# `cmake --install BUILD --component debug` puts those beside it, into .debug/, where debuggers look for them.
# With COMPONENT it is installed only where `cmake --install` names that.
# Stripped in the build tree, and copied from there: a prefix may be in use.
function(install_stripped target destination)
  set(name $<TARGET_FILE_NAME:${target}>)
  set(stripped ${CMAKE_BINARY_DIR}/stripped/${destination})
  set(debug ${stripped}/.debug/${name}.debug)
  # For a library: what its dynamic symbols do not need. For a program: all.
  set(all $<IF:$<STREQUAL:$<TARGET_PROPERTY:${target},TYPE>,EXECUTABLE>,--strip-all,--strip-unneeded>)
  set(strip "
    file(MAKE_DIRECTORY \"${stripped}/.debug\")
    execute_process(COMMAND_ERROR_IS_FATAL ANY
      COMMAND \"${CMAKE_OBJCOPY}\" --only-keep-debug \"$<TARGET_FILE:${target}>\" \"${debug}\")
    execute_process(COMMAND_ERROR_IS_FATAL ANY
      COMMAND \"${CMAKE_OBJCOPY}\" ${all} \"--add-gnu-debuglink=${debug}\" \"$<TARGET_FILE:${target}>\" \"${stripped}/${name}\")")
  set(when "")
  if(ARGC GREATER 2)
    set(when COMPONENT ${ARGV2} EXCLUDE_FROM_ALL)
  endif()
  install(CODE "${strip}" ${when})
  install(PROGRAMS ${stripped}/${name} DESTINATION ${destination} ${when})
  install(CODE "${strip}" COMPONENT debug EXCLUDE_FROM_ALL)
  install(FILES ${debug} DESTINATION ${destination}/.debug COMPONENT debug EXCLUDE_FROM_ALL)
endfunction()

# optimize_little(TARGET): for what runs once a command or once a request. GCC needs a quarter less time for it; what it says at -O1 of
# variables that are not set is often wrong, since it does not follow them as far.
function(optimize_little target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1 -Wno-maybe-uninitialized>)
endfunction()

# add_component(NAME SIDE user|job [OPTIMIZE_LITTLE] SOURCES ... LINK ...): a static library, one per folder.
# A stage that includes a header of a stage it does not link to fails to link.
function(add_component name)
  cmake_parse_arguments(ARG "OPTIMIZE_LITTLE" "SIDE" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  if(ARG_SIDE STREQUAL "job")
    target_link_libraries(${name} PUBLIC nanwatch_job_side)
    load_on_old_hosts(${name})
  else()
    target_link_libraries(${name} PUBLIC nanwatch_user_side)
    # JSON, fmt and protobuf cost each batch more than its own files do.
    set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 16)
  endif()
  if(ARG_OPTIMIZE_LITTLE)
    optimize_little(${name})
  endif()
  target_link_libraries(${name} PUBLIC ${ARG_LINK} PRIVATE ${ARG_PRIVATE_LINK})
endfunction()

# add_unit_test(NAME SOURCES ... LINK ... [LABELS ...]): a GoogleTest binary, known to ctest.
function(add_unit_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;LABELS" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE nanwatch_user_side ${ARG_LINK} GTest::gtest_main GTest::gmock)
  make_known(${name} ${ARG_LABELS})
endfunction()

# make_known(NAME [LABELS...]): a GoogleTest binary becomes one test of ctest's, labelled unit. Not one a case: there are
# thousands of them, and starting a process took longer than what most of them do.
function(make_known name)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
  set_tests_properties(${name} PROPERTIES TIMEOUT ${NANWATCH_HANGS_AFTER_S} LABELS "unit;${ARGN}")
endfunction()

# sanitize_here(quick|slow): the unit tests that this folder has made since the last call are of code that is loaded into the job.
# scripts/sanitize.sh builds them, by the target sanitized_quick or sanitized_slow, and runs them by the label of that name.
function(sanitize_here speed)
  get_property(targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
  get_property(known DIRECTORY PROPERTY NANWATCH_SANITIZED)
  list(REMOVE_ITEM targets ${known})
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "EXECUTABLE")
      set_property(TEST ${target} APPEND PROPERTY LABELS sanitized_${speed})
      if(NOT TARGET sanitized_${speed})
        add_custom_target(sanitized_${speed})
      endif()
      add_dependencies(sanitized_${speed} ${target})
      set_property(DIRECTORY APPEND PROPERTY NANWATCH_SANITIZED ${target})
    endif()
  endforeach()
endfunction()

# Programs carry their libraries with them, glibc aside, so that a prefix may be copied to another machine.
set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)
set(Protobuf_USE_STATIC_LIBS ON)
if(Protobuf_LIBRARY_RELEASE MATCHES "\\.so$")  # remembered by a build tree from before
  unset(Protobuf_LIBRARY_RELEASE CACHE)
endif()

# add_program(NAME SOURCES ... LINK ... [COMPONENT NAME]): an executable of the user's side, in bin/.
function(add_program name)
  cmake_parse_arguments(ARG "" "COMPONENT" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE nanwatch_user_side ${ARG_LINK})
  optimize_little(${name})
  if(NANWATCH_STATIC)
    target_link_options(${name} PRIVATE -static-pie)
  elseif(NOT NANWATCH_SANITIZE)
    target_link_options(${name} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
  install_stripped(${name} bin ${ARG_COMPONENT})
endfunction()
