// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What kvant_micro measures: its own options, beside those of Google Benchmark.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "backend/cpu/isa.h"
#include "kv/resolved_method.h"

namespace kvant::micro {

/// Shape of the whole attention of a model, with its name in rows: "d64g3h3l30".
struct Shape {
  std::string name;
  CacheGeometry geometry;
};

/// "d64g3h3l30": head_dim 64, 3 query heads for each KV head, 3 KV heads, 30 layers. Keys count as turned by
/// standard RoPE. Throws Error(kInvalidArgument) for any other form and for a zero.
Shape ParseShape(const std::string& text);

struct Options {
  std::vector<Isa> isas;                  // of kernels and attention; each runs here
  std::vector<std::string> specs;         // methods of attend rows
  std::vector<Shape> shapes;              // of attend rows
  std::vector<std::size_t> contexts;      // cached tokens of attend rows, increasing
  std::vector<std::size_t> threads;       // of read and attend rows, increasing
  std::vector<std::size_t> head_dims;     // of kernel rows
  std::vector<std::size_t> heads_per_kv;  // of score and accumulate rows
  bool variants = false;                  // also the codecs' variants, not only their defaults
  bool all_samples = false;               // show every repetition, not only the median
};

/// Takes what Google Benchmark left of the command line. Throws CLI::Error for what cannot be read and
/// kvant::Error for what cannot be run.
Options ParseOptions(int argc, char** argv);
/// The help text of these options.
std::string OptionsHelp();

}  // namespace kvant::micro
