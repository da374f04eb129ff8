# The Python door of the observer: layers, parameter names and source lines without Python.h.
# The observer adds ${NANWATCH_OBSERVE_PYTHON_SOURCES} to its own sources; needs nanwatch_flags and nanwatch_torch.
set(NANWATCH_OBSERVE_PYTHON_SOURCES
  ${CMAKE_CURRENT_LIST_DIR}/backward_calls.cc
  ${CMAKE_CURRENT_LIST_DIR}/builtin_calls.cc
  ${CMAKE_CURRENT_LIST_DIR}/call_tensors.cc
  ${CMAKE_CURRENT_LIST_DIR}/exit_call.cc
  ${CMAKE_CURRENT_LIST_DIR}/graph_calls.cc
  ${CMAKE_CURRENT_LIST_DIR}/known_optimizers.cc
  ${CMAKE_CURRENT_LIST_DIR}/layer_table.cc
  ${CMAKE_CURRENT_LIST_DIR}/live_tensors.cc
  ${CMAKE_CURRENT_LIST_DIR}/loader_fetch.cc
  ${CMAKE_CURRENT_LIST_DIR}/module_scope.cc
  ${CMAKE_CURRENT_LIST_DIR}/module_tree.cc
  ${CMAKE_CURRENT_LIST_DIR}/notebook_cells.cc
  ${CMAKE_CURRENT_LIST_DIR}/optimizer_hooks.cc
  ${CMAKE_CURRENT_LIST_DIR}/optimizer_tensors.cc
  ${CMAKE_CURRENT_LIST_DIR}/profiler_calls.cc
  ${CMAKE_CURRENT_LIST_DIR}/python_api.cc
  ${CMAKE_CURRENT_LIST_DIR}/python_door.cc
  ${CMAKE_CURRENT_LIST_DIR}/python_frames.cc
  ${CMAKE_CURRENT_LIST_DIR}/python_names.cc
  ${CMAKE_CURRENT_LIST_DIR}/python_text.cc
  ${CMAKE_CURRENT_LIST_DIR}/scaler_calls.cc
  ${CMAKE_CURRENT_LIST_DIR}/storage_hold.cc)
