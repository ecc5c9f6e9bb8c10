# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

# Cross build for 64-bit ARM with Debian's compiler; tests run under qemu's user emulation. Libraries of
# that architecture are taken where they are installed and done without otherwise (KvantCross.cmake).

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)  # only GoogleTest names the language
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

find_program(KVANT_QEMU NAMES qemu-aarch64-static qemu-aarch64)
if(KVANT_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${KVANT_QEMU};-L;/usr/aarch64-linux-gnu")
endif()

# Never the libraries of the build machine.
set(ENV{PKG_CONFIG_LIBDIR} "/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig")
