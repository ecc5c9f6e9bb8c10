# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

# smoke.cmake: runs PROGRAM on tiny shapes with every instruction set and checks the form of what it
# writes to OUT: each kind of row is there, none failed, each says what part of the read bandwidth it is.

execute_process(
  COMMAND ${PROGRAM} --kernel=all --shape=d64g3h1l1 --ctx=256,2048,4096 --threads=1,2 --head-dim=64
          --heads-per-kv=1,3 --benchmark_min_time=0.001 --benchmark_repetitions=1
          "--benchmark_filter=^(read|attend)/|/d64(g3)?/(normal|warm)" --benchmark_out=${OUT}
  OUTPUT_VARIABLE text ERROR_VARIABLE errors RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "status ${status}\n${errors}\n${text}")
endif()
if(NOT text MATCHES "slope[^\n]*ratio [0-9.]+")
  message(FATAL_ERROR "the table of ratios has no slope\n${text}")
endif()

file(READ ${OUT} json)
string(JSON n_rows LENGTH "${json}" benchmarks)
math(EXPR last "${n_rows} - 1")
set(names "")
foreach(i RANGE ${last})
  string(JSON name GET "${json}" benchmarks ${i} name)
  string(JSON fraction ERROR_VARIABLE error GET "${json}" benchmarks ${i} frac_of_read)
  if(error OR NOT fraction GREATER 0)
    message(FATAL_ERROR "${name} has no frac_of_read above 0: ${error} ${fraction}")
  endif()
  string(APPEND names "${name}\n")
endforeach()
foreach(wanted read/sum/plain/t1 read/sum/plain/t2 encode_k/fp16/scalar/d64/normal
        encode_v/turboquant_rvq/scalar/d64/normal decode_k/bf16/scalar/d64/warm
        decode_v/turboquant_mse/scalar/d64/warm score/turboquant_rvq/scalar/d64g3/warm
        accumulate/fp16/scalar/d64g3/warm attend/fp16/scalar/d64g3h1l1/ctx256/t1
        attend/turboquant_rvq/scalar/d64g3h1l1/ctx4096/t2)
  if(NOT names MATCHES "(^|\n)${wanted}\n")
    message(FATAL_ERROR "there is no row ${wanted}; there are\n${names}")
  endif()
endforeach()
