# Writes the source that defines build_facts() (base/build_facts.h). Runs at every build; the file changes only with its content.
#   cmake -DSOURCE=DIR -DOUTPUT=FILE -DVERSION=... -DCOMPILER=... -DARCH=... -DCUDA=... -DNCCL=1 -DCUDNN=1 -P build_facts.cmake
# The commit is git's where SOURCE is a checkout, otherwise the one that git archive wrote into cmake/commit.txt, otherwise unknown.
set(commit "unknown")
set(date "")
set(changed false)

function(git result)
  execute_process(COMMAND git -C ${SOURCE} ${ARGN} OUTPUT_VARIABLE out RESULT_VARIABLE code ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(${result} "${out}" PARENT_SCOPE)
  set(code "${code}" PARENT_SCOPE)
endfunction()

git(root rev-parse --show-toplevel)
file(REAL_PATH ${SOURCE} real)
if(root STREQUAL real)  # not a tree inside of another project's checkout
  git(found log -1 --format=%H\ %cs)
  git(ignored diff --quiet HEAD)
  if(code EQUAL 1)
    set(changed true)
  endif()
else()
  file(READ ${SOURCE}/cmake/commit.txt found)
endif()
if(found MATCHES "^([0-9a-f]+) ([0-9-]+)")
  set(commit ${CMAKE_MATCH_1})
  set(date ${CMAKE_MATCH_2})
endif()

file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT [[
#include "base/build_facts.h"

namespace trireme {

BuildFacts build_facts() {
  return {.version = "@VERSION@",
          .commit = "@commit@",
          .commit_date = "@date@",
          .changed = @changed@,
          .compiler = "@COMPILER@",
          .processor = "@ARCH@",
          .cuda = "@CUDA@",
          .nccl = @NCCL@ != 0,
          .cudnn = @CUDNN@ != 0};
}

}  // namespace trireme
]])
