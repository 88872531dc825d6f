# Every foreign library, as one interface target each: onednn mpi hdf5 pcre2 sentencepiece utf8proc zlib zstd lzma bzip2 json xxhash yaml cli catch, and CUDA where it is found.
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)

# oneDNN: its own CMake package wants OpenCL's development files, so it is found by hand.
find_path(ONEDNN_INCLUDE oneapi/dnnl/dnnl.hpp REQUIRED)
find_library(ONEDNN_LIBRARY dnnl REQUIRED)
add_library(onednn INTERFACE)
target_include_directories(onednn SYSTEM INTERFACE ${ONEDNN_INCLUDE})
target_link_libraries(onednn INTERFACE ${ONEDNN_LIBRARY})

add_library(mpi INTERFACE)
target_compile_definitions(mpi INTERFACE OMPI_SKIP_MPICXX)
add_library(hdf5 INTERFACE)
if(CMAKE_CROSSCOMPILING)  # mpicc and h5cc, which find_package() asks, know this machine's own libraries alone
  pkg_check_modules(mpi_pc REQUIRED IMPORTED_TARGET ompi-c)
  target_link_libraries(mpi INTERFACE PkgConfig::mpi_pc)
  pkg_search_module(hdf5_pc REQUIRED IMPORTED_TARGET hdf5-serial hdf5)
  target_link_libraries(hdf5 INTERFACE PkgConfig::hdf5_pc)
else()
  find_package(MPI REQUIRED COMPONENTS C)
  target_link_libraries(mpi INTERFACE MPI::MPI_C)
  find_package(HDF5 REQUIRED COMPONENTS C)
  target_include_directories(hdf5 SYSTEM INTERFACE ${HDF5_INCLUDE_DIRS})
  target_link_libraries(hdf5 INTERFACE ${HDF5_C_LIBRARIES})
endif()

foreach(library pcre2:libpcre2-8 utf8proc:libutf8proc zlib:zlib zstd:libzstd lzma:liblzma xxhash:libxxhash)
  string(REPLACE ":" ";" pair ${library})
  list(GET pair 0 name)
  list(GET pair 1 package)
  pkg_check_modules(${name}_pc REQUIRED IMPORTED_TARGET ${package})
  add_library(${name} INTERFACE)
  target_link_libraries(${name} INTERFACE PkgConfig::${name}_pc)
endforeach()

find_path(BZIP2_INCLUDE bzlib.h REQUIRED)  # it has no pkg-config file everywhere
find_library(BZIP2_LIBRARY bz2 REQUIRED)
add_library(bzip2 INTERFACE)
target_include_directories(bzip2 SYSTEM INTERFACE ${BZIP2_INCLUDE})
target_link_libraries(bzip2 INTERFACE ${BZIP2_LIBRARY})

# xxHash's library chooses between SSE2, AVX2 and AVX-512 at run time, where its package has that: 2.3 times as fast as SSE2 alone.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES xxhash)
check_cxx_source_compiles("#include <xxh_x86dispatch.h>\nint main() { return XXH3_64bits(\"\", 0) == 0; }" XXH_DISPATCH)
unset(CMAKE_REQUIRED_LIBRARIES)

# SentencePiece: its pkg-config file also names the library that trains.
find_path(SENTENCEPIECE_INCLUDE sentencepiece_processor.h REQUIRED)
find_library(SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
add_library(sentencepiece INTERFACE)
target_include_directories(sentencepiece SYSTEM INTERFACE ${SENTENCEPIECE_INCLUDE})
target_link_libraries(sentencepiece INTERFACE ${SENTENCEPIECE_LIBRARY})

find_package(nlohmann_json REQUIRED)
add_library(json INTERFACE)
target_link_libraries(json INTERFACE nlohmann_json::nlohmann_json)

find_package(yaml-cpp REQUIRED)
add_library(yaml INTERFACE)
if(TARGET yaml-cpp::yaml-cpp)
  target_link_libraries(yaml INTERFACE yaml-cpp::yaml-cpp)
else()
  target_link_libraries(yaml INTERFACE yaml-cpp)
endif()

find_package(CLI11 REQUIRED)
add_library(cli INTERFACE)
target_link_libraries(cli INTERFACE CLI11::CLI11)

set(TRIREME_WITH_CUDA OFF)
if(TRIREME_CUDA AND NOT TRIREME_SANITIZE)
  find_program(TRIREME_NVCC nvcc HINTS ENV CUDA_HOME /usr/local/cuda /opt/cuda PATH_SUFFIXES bin)
  if(TRIREME_NVCC)
    set(CMAKE_CUDA_COMPILER ${TRIREME_NVCC})
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    # Machine code of Ampere (which Ada runs, too), Hopper and Blackwell, as far as the toolkit knows them, and
    # PTX, which the driver compiles for GPUs that came later.
    execute_process(COMMAND ${TRIREME_NVCC} --list-gpu-arch OUTPUT_VARIABLE known)
    set(architectures 80 90-real)
    if(known MATCHES "compute_100")
      list(APPEND architectures 100-real)
    endif()
    set(CMAKE_CUDA_ARCHITECTURES ${architectures} CACHE STRING "GPU architectures")
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
      enable_language(CUDA)
      # CMake before 3.26 does not know nvcc's option for C++20.
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA_STANDARD 20)
      set(CMAKE_CUDA_STANDARD_REQUIRED ON)
      find_package(CUDAToolkit REQUIRED)
      find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
      find_path(CUDNN_INCLUDE cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS})  # of cuDNN 9 or later
      set(TRIREME_WITH_CUDA ON)
    endif()
  endif()
endif()
message(STATUS "CUDA back-end: ${TRIREME_WITH_CUDA}, NCCL: ${NCCL_INCLUDE}, cuDNN: ${CUDNN_INCLUDE}")
