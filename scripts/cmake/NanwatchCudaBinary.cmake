# SPDX-License-Identifier: Apache-2.0
# add_cuda_binary(OUTPUT PTX): a rule that makes OUTPUT, one image of the kernels' text for several architectures of NVIDIA's. Sets
# cuda_binary_is_made to false where the toolkit's assembler is absent.
#
# An image of sm_80 runs on 8.x, and so on: one for each major version. What is not among them the driver compiles from the text, as it
# does where it is older than this assembler. The images are compressed, a sixth of what they are without.
find_program(NANWATCH_PTXAS ptxas PATHS /usr/local/cuda/bin /opt/cuda/bin)
find_program(NANWATCH_FATBINARY fatbinary PATHS /usr/local/cuda/bin /opt/cuda/bin)
mark_as_advanced(NANWATCH_PTXAS NANWATCH_FATBINARY)

function(add_cuda_binary output ptx)
  set(cuda_binary_is_made FALSE PARENT_SCOPE)
  if(NOT NANWATCH_PTXAS OR NOT NANWATCH_FATBINARY)
    return()
  endif()
  execute_process(COMMAND ${NANWATCH_PTXAS} --help OUTPUT_VARIABLE help ERROR_QUIET)
  set(images)
  set(cubins)
  foreach(architecture IN ITEMS 80 90 100 120)
    if(NOT help MATCHES "sm_${architecture}'")
      continue()
    endif()
    set(cubin ${output}.${architecture}.cubin)
    add_custom_command(OUTPUT ${cubin} DEPENDS ${ptx} VERBATIM
      COMMAND ${NANWATCH_PTXAS} -arch=sm_${architecture} ${ptx} -o ${cubin}
      COMMENT "Assembling the kernels for sm_${architecture}")
    list(APPEND cubins ${cubin})
    list(APPEND images --image3=kind=elf,sm=${architecture},file=${cubin})
  endforeach()
  if(NOT cubins)
    return()
  endif()
  add_custom_command(OUTPUT ${output} DEPENDS ${cubins} VERBATIM
    COMMAND ${NANWATCH_FATBINARY} -64 --compress-all --create=${output} ${images}
    COMMENT "Joining the kernels' images")
  set(cuda_binary_is_made TRUE PARENT_SCOPE)
endfunction()
