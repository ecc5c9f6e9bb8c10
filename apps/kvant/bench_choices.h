// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// What the options of `kvant bench` choose of a protocol, and the command that chooses the same
// again.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "apps/kvant/options.h"
#include "bench/harness/run.h"

namespace kvant::cli {

struct BenchOptions {
  CommonOptions common;
  std::string protocol = "honest";
  std::vector<std::size_t> lengths;
  std::string arms;
  std::size_t rounds = 0;
  bool full = false;
  std::string out;
  std::string render;
  // A process that this command starts for itself: one arm, one length, its memory as JSON.
  std::string memory_of;
  std::size_t memory_length = 0, memory_steps = 0;
  bool has_kv = false;
};

/// The protocol's arms, then those of --arms and --kv that are not there yet. --arms takes the
/// place of the protocol's methods but the baseline; in mode "published", of the method of the last
/// table
/// (`protocol` then follows: its tables and names are those of the run). Throws
/// Error(kInvalidArgument) for a spec that does not parse, before anything is loaded.
std::vector<bench::Arm> ChooseArms(const BenchOptions& options, bench::Protocol& protocol);

/// Ascending prompt lengths. Those that were asked for must fit max_length, else
/// Error(kInvalidArgument); those of the protocol are taken as far as they do.
std::vector<std::size_t> ChooseLengths(const BenchOptions& options, const bench::Protocol& protocol,
                                       std::size_t max_length, bench::ProgressSink& progress);

/// The command that repeats a run, everything that was chosen for the user written out.
std::string ReproduceCommand(const BenchOptions& options, const bench::BenchConfig& config,
                             const bench::Measurements& measured, std::size_t n_threads);

}  // namespace kvant::cli
