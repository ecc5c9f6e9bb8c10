// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The models that `kvant fetch` knows: where their parts are published and what the assembled file must
// be. It is a list of facts; model_fetch.h does the work. A model outside the list is used by its path.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvant::cli {

/// One wheel of the Python package index and the file inside it that holds a piece of the model.
struct ModelPart {
  std::string package;
  std::string version;
  std::string member;  // path inside the wheel
};

struct CatalogModel {
  std::string name;  // CLI value; the file is NAME.gguf in the cache folder
  std::string title;
  std::string licence;
  std::string notice;  // terms to state before the download; empty where the licence says it all
  std::uint64_t bytes = 0;
  std::string sha256;  // 64 lower-case hex digits, of the assembled file
  std::vector<ModelPart> parts;  // concatenated in this order
};

/// The known models, the default one first.
const std::vector<CatalogModel>& ModelCatalog();

/// Throws Error(kInvalidArgument) that lists the allowed names.
const CatalogModel& FindCatalogModel(const std::string& name);

}  // namespace kvant::cli
