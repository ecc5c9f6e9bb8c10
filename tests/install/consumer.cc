// SPDX-FileCopyrightText: The kvant authors
// SPDX-License-Identifier: Apache-2.0

// The smallest user of an installed kvant: public headers, an error thrown and caught.

#include <kvant/error.h>

#include <cstdio>
#include <cstring>

int main() {
  try {
    throw kvant::Error(kvant::ErrorCode::kNotFound, "as wanted");
  } catch (const kvant::Error& error) {
    std::puts(error.what());
    return error.code() == kvant::ErrorCode::kNotFound && std::strcmp(error.what(), "as wanted") == 0
               ? 0
               : 1;
  }
}
