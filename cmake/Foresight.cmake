# Target helpers. Every library and tool of the project is made by one of these,
# so that warnings and sanitizers are decided in one place.

function(_foresight_options target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wno-unused-parameter
    $<$<BOOL:${FORESIGHT_WERROR}>:-Werror>)
  if(FORESIGHT_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${FORESIGHT_SANITIZE}
      -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${FORESIGHT_SANITIZE})
  endif()
endfunction()

# Plain C++: no LLVM or MLIR header reaches these targets.
#   foresight_library(name SOURCES ... [LINK ...])      public headers in include/
function(foresight_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR}/include)
  target_link_libraries(${name} PUBLIC ${ARG_LINK})
  _foresight_options(${name})
endfunction()

function(foresight_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  _foresight_options(${name})
endfunction()

# Code that includes MLIR: its headers are system headers, so that our warnings
# do not fire inside them. Links libMLIR and libLLVM dynamically.
#   foresight_mlir_library(name SOURCES ... [LINK ...] [DEPENDS tablegen-targets])
function(_foresight_mlir target)
  target_include_directories(${target} SYSTEM PUBLIC ${MLIR_INCLUDE_DIRS} ${LLVM_INCLUDE_DIRS})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/dialect/include
    ${PROJECT_BINARY_DIR}/dialect/include ${PROJECT_SOURCE_DIR}/compiler/include
    ${PROJECT_BINARY_DIR}/compiler/include)
  if(NOT LLVM_ENABLE_RTTI)
    target_compile_options(${target} PRIVATE -fno-rtti)
  endif()
endfunction()

function(foresight_mlir_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  _foresight_mlir(${name})
  target_link_libraries(${name} PUBLIC ${ARG_LINK} MLIR LLVM)
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
  _foresight_options(${name})
endfunction()

function(foresight_mlir_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  _foresight_mlir(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} MLIR LLVM)
  _foresight_options(${name})
endfunction()

# A GoogleTest binary, each of whose tests ctest knows by name.
function(foresight_unit_test name)
  cmake_parse_arguments(ARG "MLIR" "" "SOURCES;LINK" ${ARGN})
  if(NOT FORESIGHT_BUILD_TESTS)
    return()
  endif()
  if(ARG_MLIR)
    foresight_mlir_executable(${name} SOURCES ${ARG_SOURCES} LINK ${ARG_LINK} GTest::gtest_main GTest::gmock)
  else()
    foresight_executable(${name} SOURCES ${ARG_SOURCES} LINK ${ARG_LINK} GTest::gtest_main GTest::gmock)
  endif()
  target_compile_definitions(${name} PRIVATE FORESIGHT_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    FORESIGHT_BINARY_DIR="${PROJECT_BINARY_DIR}")
  # Names are those that the tests give: GoogleTest prints a parameter that has
  # no printer as its bytes, which change from run to run.
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES
    PROPERTIES TIMEOUT 600)
endfunction()
