// SPDX-License-Identifier: Apache-2.0
#include "tools/dispatch.h"

int main(int argc, char** argv) { return nanwatch::Dispatch(argc, argv); }
